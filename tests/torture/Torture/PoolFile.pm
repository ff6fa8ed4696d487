
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

our @EXPORT = qw(read_pool check_lsns tag_of);

# The superblock and the sealed descriptors of a pool: references to a hash and to
# a list of hashes, each with its page, its tag "spc/db/rel/fork/block", and code
# that tells whether its CRC is right (intact).
sub read_pool
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	my ($sb, $is_copy) = read_superblock($fh);
	say_line('    the first superblock is damaged') if $is_copy;
	my ($capacity, undef, $blocks) = unpack('x88 QQQ', $sb);
	my ($slots, $state) = unpack('x112 QL', $sb);
	seek($fh, 2 * 1024 * 1024, 0);
	read($fh, my $all, 64 * $slots);
	my @d;
	for my $i (0 .. $slots - 1)
	{
		my ($seq, $lsn, $epoch, $spc, $db, $rel, $fork, $block, $slot, $version, $flags, $usage) =
		  unpack('QQQLLLlLLSSC', substr($all, 64 * $i, 40 + 24));
		next if $seq & 1 || $version != 1 || $slot != $i;
		my $line = substr($all, 64 * $i, 64);
		seek($fh, $blocks + 8192 * $i, 0);
		read($fh, my $page, 8192);
		push @d,
		  { intact => sub { unpack('L', substr($line, 60)) == crc32c(substr($line, 8, 52)) },
			slot => $i, seq => $seq, lsn => $lsn, epoch => $epoch, flags => $flags, usage => $usage,
			tag => "$spc/$db/$rel/$fork/$block", page_lsn => page_lsn($page), page => $page };
	}
	close $fh;
	my %sb = (state => $state, mode => unpack('L', substr($sb, 124, 4)), blocks => $blocks, slots => $slots, first_epoch => unpack('Q', substr($sb, 144, 8)),
		saved => page_lsn_swapped(substr($sb, 152, 16)));
	open($fh, '<:raw', $pool) or die;
	seek($fh, 8192, 0);
	read($fh, my $wm, 64);
	read($fh, my $control, 128);
	close $fh;
	my @w = map { my ($f, $w) = unpack('QQ', substr($wm, 32 * $_, 16)); format_lsn($f) . ' witness ' . format_lsn($w) } 0, 1;
	$sb{watermarks} = join(', ', @w);
	# what pg_control looked like: number, hash, checkpoint, epoch
	for my $half (0, 1)
	{
		my ($number, undef, $checkpoint, $epoch) = unpack('Q4', substr($control, 64 * $half, 32));
		$sb{ (qw(pending confirmed))[$half] } = "$number checkpoint " . format_lsn($checkpoint) . " epoch $epoch";
	}
	return (\%sb, \@d);
}

# A sealed descriptor has the LSN of its page, or (PCACHE_DESC_LSN_BOUND, rule "a save in
# memory bounds LSNs by the checkpoint") one that no page of a permanent relation exceeds.
sub check_lsns
{
	my ($descs) = @_;
	my @odd = grep {
		$_->{flags} & 4 ? $_->{flags} & 1 && $_->{page_lsn} > $_->{lsn} : $_->{lsn} != $_->{page_lsn}
	} @$descs;
	problem(sprintf('%d sealed pages have another LSN than their descriptors, first: slot %d tag %s descriptor %s page %s',
			scalar @odd, $odd[0]{slot}, $odd[0]{tag}, format_lsn($odd[0]{lsn}), format_lsn($odd[0]{page_lsn}))) if @odd;
	return;
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
