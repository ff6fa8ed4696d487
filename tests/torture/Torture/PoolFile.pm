
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::PoolFile - what does a pool file hold?

=head1 DESCRIPTION

Read from the file, without the server.  The offsets are those of
storage/pcache_layout.h.

=cut

package Torture::PoolFile;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use PageCompare;
use Superblock;
use Torture::State;

our @EXPORT = qw(read_pool tag_of);

# The superblock of a pool, and the entries that a clean stop has left: references to a
# hash and to a list of hashes, each with its page and its tag "spc/db/rel/fork/block".
sub read_pool
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	my ($sb, $is_copy) = read_superblock($fh);
	say_line('    the first superblock is damaged') if $is_copy;
	my ($blocks, $slots, $state, $mode) = unpack('x104 QQLL', $sb);
	seek($fh, 2 * 1024 * 1024, 0);
	read($fh, my $all, 64 * $slots);
	my @d;
	for my $i (0 .. $slots - 1)
	{
		last if $state != STATE_CLEAN;
		my ($seq, $spc, $db, $rel, $fork, $block, $slot, $version, $flags) = unpack('Q x16 LLLlLLSS', substr($all, 64 * $i, 64));
		next if $seq & 1 || $version != 1 || $slot != $i;
		seek($fh, $blocks + 8192 * $i, 0);
		read($fh, my $page, 8192);
		push @d, { slot => $i, seq => $seq, flags => $flags, tag => "$spc/$db/$rel/$fork/$block", lsn => page_lsn($page), page => $page };
	}
	close $fh;
	return ({ state => $state, mode => $mode, blocks => $blocks, slots => $slots, saved => page_lsn_swapped(substr($sb, 152, 16)) }, \@d);
}

# Two LSNs of the superblock, location and redo, as text.
sub page_lsn_swapped
{
	my ($loc, $redo) = unpack('QQ', $_[0]);
	return format_lsn($loc) . ' redo ' . format_lsn($redo);
}

# The start of the tag, "spc/db/rel/fork", of a relation file, given as its path
# below PGDATA; empty if that is none.
sub tag_of
{
	my ($path) = @_;
	my %forks = (main => 0, fsm => 1, vm => 2, init => 3);
	$path =~ m{^(?:global|base/(\d+)|pg_tblspc/(\d+)/[^/]+/(\d+))/(\d+)(?:_(\w+))?(?:\.\d+)?$} or return '';
	my ($spc, $db) = defined $1 ? (1663, $1) : defined $2 ? ($2, $3) : (1664, 0);
	return "$spc/$db/$4/" . $forks{ $5 // 'main' };
}

1;
