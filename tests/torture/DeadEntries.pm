
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

DeadEntries - may these index entries be marked as dead?

=head1 SYNOPSIS

  my @tids = dead_only_in_first($page_a, $page_b);
  my $why = row_lives($dir_b, 'base/5/16384', @{ $tids[0] });

=head1 DESCRIPTION

An index entry may be marked as dead (LP_DEAD) in one recovery of a crash and
not in another, because the mark is a hint, which is not logged.  But then its
rows must be dead in both.  PageCompare masks these flags, as
wal_consistency_checking does; this module looks behind them.

Only entries that are marked in the first page and not in the second one are
looked at: where both have a mark, it comes from the files.

=cut

package DeadEntries;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use PageCompare;

our @EXPORT = qw(dead_only_in_first row_lives);

use constant {
	BLCKSZ => 8192,
	HEADER => 24,
	LP_UNUSED => 0,
	LP_NORMAL => 1,
	LP_REDIRECT => 2,
	LP_DEAD => 3,
	HEAP_XMAX_EXCL_LOCK => 0x40,
	HEAP_XMAX_LOCK_ONLY => 0x80,
	HEAP_XMIN_COMMITTED => 0x100,
	HEAP_XMIN_INVALID => 0x200,
	HEAP_XMAX_COMMITTED => 0x400,
	HEAP_XMAX_INVALID => 0x800,
	HEAP_XMAX_IS_MULTI => 0x1000,
	HEAP_HOT_UPDATED => 0x4000,
	HEAP_ONLY_TUPLE => 0x8000,
	COMMITTED => 1,
};

sub line_pointers
{
	my ($page) = @_;
	my $lower = unpack('x12 S', $page);
	return () if $lower <= HEADER || $lower > BLCKSZ;
	return map { { offset => $_ & 0x7FFF, flags => ($_ >> 15) & 3, length => $_ >> 17 } }
	  unpack('L*', substr($page, HEADER, $lower - HEADER));
}

# The TIDs of an index tuple: [ block, offset ], several if it is a posting list
# of a btree.
sub entry_tids
{
	my ($page, $lp, $is_btree) = @_;
	my ($hi, $lo, $offset, $info) = unpack('SSSS', substr($page, $lp->{offset}, 8));

	if ($is_btree && ($info & 0x2000) && ($offset & 0x2000))
	{
		my $n = $offset & 0x0FFF;
		my $at = $lp->{offset} + (($hi << 16) | $lo);
		return map {
			my ($h, $l, $o) = unpack('SSS', substr($page, $at + 6 * $_, 6));
			[ ($h << 16) | $l, $o ]
		} 0 .. $n - 1;
	}
	return [ ($hi << 16) | $lo, $offset ];
}

=pod

=item dead_only_in_first($page_a, $page_b)

The TIDs, as [ block, offset ], of the entries that are marked as dead in page A
only, of two versions of a page of a btree, hash or GiST index that are equal
but for hints.  Other pages have none.

=cut

sub dead_only_in_first
{
	my ($page_a, $page_b) = @_;
	my $kind = page_kind($page_a);
	my @tids;

	return () if $kind !~ /^(?:btree|hash|gist)$/ || page_kind($page_b) ne $kind;

	# leaf pages of btree and GiST, bucket and overflow pages of hash
	my $flags = unpack('S', substr($page_a, unpack('x16 S', $page_a) + 12, 2));
	return () if $kind eq 'hash' ? ($flags & 0xF) !~ /^[12]$/ : !($flags & 1);

	my @a = line_pointers($page_a);
	my @b = line_pointers($page_b);
	for my $i (0 .. $#a)
	{
		next if $a[$i]{flags} != LP_DEAD || !$b[$i] || $b[$i]{flags} == LP_DEAD;
		push @tids, entry_tids($page_a, $a[$i], $kind eq 'btree');
	}
	return @tids;
}

# What became of a transaction, by pg_xact of a server that is down.
my %xact_files;

sub transaction_status
{
	my ($dir, $xid) = @_;
	my $file = sprintf('%s/pg_xact/%04X', $dir, int($xid / (32 * BLCKSZ * 4)));

	if (!exists $xact_files{$file})
	{
		%xact_files = () if keys %xact_files > 16;
		$xact_files{$file} = '';
		if (open(my $fh, '<:raw', $file))
		{
			local $/;
			$xact_files{$file} = <$fh> // '';
			close $fh;
		}
	}
	my $byte = int(($xid % (32 * BLCKSZ * 4)) / 4);
	return 0 if $byte >= length $xact_files{$file};
	return (ord(substr($xact_files{$file}, $byte, 1)) >> (2 * ($xid % 4))) & 3;
}

=pod

=item row_lives($dir, $path, $block, $offset)

Is there a live row at this TID of the table whose first file is $path, in a data
directory whose server was stopped cleanly?  Returns undef if not, and otherwise
what is there.  A chain of updates within the page is followed.

=cut

sub row_lives
{
	my ($dir, $path, $block, $offset) = @_;
	my $segment = int($block / 131072);
	my $page = read_page("$dir/$path" . ($segment ? ".$segment" : ''), $block % 131072);
	my ($prev, $at_start) = (0, 1);

	return undef if !defined $page || $page !~ /[^\0]/;
	my @lp = line_pointers($page);
	while ($offset >= 1 && $offset <= @lp)
	{
		my $lp = $lp[ $offset - 1 ];

		if ($lp->{flags} == LP_REDIRECT && $at_start)
		{
			$offset = $lp->{offset};
			$at_start = 0;
			next;
		}
		last if $lp->{flags} != LP_NORMAL;

		my ($xmin, $xmax, undef, undef, undef, $next, $mask2, $mask) =
		  unpack('LLLSSSSS', substr($page, $lp->{offset}, 22));
		last if $at_start && ($mask2 & HEAP_ONLY_TUPLE);
		last if $prev && $prev != $xmin;

		my $state = sprintf('(%d,%d) xmin %u xmax %u mask %04x', $block, $offset, $xmin, $xmax, $mask);
		my $frozen = ($mask & 0x300) == 0x300;
		my $inserted = $frozen || ($mask & HEAP_XMIN_COMMITTED)
		  || (!($mask & HEAP_XMIN_INVALID) && transaction_status($dir, $xmin) == COMMITTED);
		if ($inserted)
		{
			return "$state: not deleted" if ($mask & HEAP_XMAX_INVALID) || !$xmax
			  || ($mask & HEAP_XMAX_LOCK_ONLY)
			  || ($mask & 0x1050) == HEAP_XMAX_EXCL_LOCK;
			return "$state: deleted by a member of a multixact" if $mask & HEAP_XMAX_IS_MULTI;
			return "$state: the deletion was not committed"
			  if !($mask & HEAP_XMAX_COMMITTED) && transaction_status($dir, $xmax) != COMMITTED;
		}
		last if !($mask2 & HEAP_HOT_UPDATED);
		$prev = $xmax;
		$offset = $next;
		$at_start = 0;
	}
	return undef;
}

1;
