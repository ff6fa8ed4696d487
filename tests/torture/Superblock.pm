
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Superblock - the superblock of a pool file

=head1 DESCRIPTION

Read from the file, without the server.  The offsets are those of
storage/pcache_layout.h.

=cut

package Superblock;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT = qw(crc32c read_superblock was_cut_off STATE_DIRTY STATE_CLEAN);

use constant { SIZE => 4096, STATE_EMPTY => 1, STATE_DIRTY => 3, STATE_CLEAN => 4, MODE_ALWAYS => 2 };

my @CRC32C = map {
	my $c = $_;
	$c = $c & 1 ? ($c >> 1) ^ 0x82F63B78 : $c >> 1 for 1 .. 8;
	$c;
} 0 .. 255;

# CRC-32C (Castagnoli) of a string of bytes.
sub crc32c
{
	my $c = 0xFFFFFFFF;
	$c = $CRC32C[ ($c ^ $_) & 0xFF ] ^ ($c >> 8) for unpack('C*', $_[0]);
	return $c ^ 0xFFFFFFFF;
}

# The bytes of the one that counts, from a file handle, and whether that is the copy.
sub read_superblock
{
	my ($fh) = @_;
	seek($fh, 0, 0);
	read($fh, my $sb, SIZE);
	return ($sb, 0) if unpack('L', substr($sb, 4084, 4)) == crc32c(substr($sb, 0, 4084));
	read($fh, $sb, SIZE);
	return ($sb, 1);
}

# Why the next start is to go without a pool that is in order, or nothing: so many starts
# that had kept pages of it were cut off.  In mode always, that takes two.
sub was_cut_off
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or return;
	return if -s $fh < 2 * SIZE;
	my ($sb) = read_superblock($fh);
	close $fh;
	my ($state, $mode, $starts) = unpack('x120 LL x88 L', $sb);
	return 'not used, because the last start was cut off' if $state != STATE_EMPTY && $starts >= ($mode == MODE_ALWAYS ? 2 : 1);
	return;
}

1;
