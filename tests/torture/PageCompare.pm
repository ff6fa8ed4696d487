
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PageCompare - are the relation files of two data directories the same?

=head1 SYNOPSIS

  my $result = compare_data_dirs($dir_a, $dir_b, sub { my ($path) = @_; ... },
    sub { my ($path, $block, $fork, $page_a, $page_b) = @_; ... });

=head1 DESCRIPTION

Compares main, visibility map and init forks, block by block.  Equal bytes are
equal; other pages are masked as the resource managers do for
wal_consistency_checking (access/common/bufmask.c and the *_mask functions),
and compared again.

What is masked beyond that, and why:

=over

=item * lastUsedPages in the metapage of an SP-GiST index: a cache that is
changed without WAL (SpGistUpdateMetaPage), so a kept page may have more of it
than the file.

=item * F_TUPLES_DELETED of a GiST page: redo of XLOG_GIST_DELETE sets it
(gistRedoDeleteRecord), and gistprunepage() does not, so a page that was changed
before the crash lacks what a replayed one has.  No code of PostgreSQL 18.6 acts
on this flag.

=back

What wal_consistency_checking
masks and is reported here nevertheless, as a "soft" difference, because two
recoveries of the same WAL should agree on it: the page LSN and
PD_ALL_VISIBLE.

=cut

package PageCompare;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use Programs;

our @EXPORT = qw(compare_data_dirs relation_files page_lsn page_kind
  mask_page read_page format_lsn heap_tuples verify_pages);

use constant {
	BLCKSZ => 8192,
	CHUNK => 128 * 8192,
	HEADER => 24,
};

# All relation files below a data directory, by path relative to it, except
# temporary ones and free space maps.
sub relation_files
{
	my ($dir) = @_;
	my %files;
	my @dirs = grep { -d "$dir/$_" } 'global';

	for my $top (glob("$dir/base/*"), glob("$dir/pg_tblspc/*/PG_*/*"))
	{
		next unless -d $top;
		my $rel = substr($top, length($dir) + 1);
		next if $rel =~ m{/pgsql_tmp};
		push @dirs, $rel;
	}
	for my $d (@dirs)
	{
		opendir(my $dh, "$dir/$d") or die "could not open $dir/$d: $!";
		for my $f (readdir $dh)
		{
			$files{"$d/$f"} = -s "$dir/$d/$f"
			  if $f =~ /^[0-9]+(?:_vm|_init)?(?:\.[0-9]+)?$/;
		}
		closedir $dh;
	}
	return \%files;
}

sub page_lsn
{
	my ($hi, $lo) = unpack('LL', $_[0]);
	return ($hi << 32) | $lo;
}

sub format_lsn
{
	my ($lsn) = @_;
	return sprintf('%X/%X', $lsn >> 32, $lsn & 0xFFFFFFFF);
}

sub read_page
{
	my ($file, $block) = @_;
	open(my $fh, '<:raw', $file) or return undef;
	seek($fh, $block * BLCKSZ, 0) or return undef;
	my $n = read($fh, my $page, BLCKSZ);
	close $fh;
	return (defined $n && $n == BLCKSZ) ? $page : undef;
}

# Which access method does a page of a main fork belong to?
sub page_kind
{
	my ($page) = @_;
	my $special = unpack('x16 S', $page);
	my $last = unpack('S', substr($page, -2));

	return 'heap' if $special == BLCKSZ;
	if ($special == BLCKSZ - 16)
	{
		return 'gist' if $last == 0xFF81;
		return 'hash' if $last == 0xFF80;
		return 'btree';
	}
	if ($special == BLCKSZ - 8)
	{
		return 'sequence' if unpack('L', substr($page, $special, 4)) == 0x1717;
		return 'spgist' if $last == 0xFF82;
		return 'brin' if $last >= 0xF091 && $last <= 0xF093;
		return 'gin';
	}
	return 'other';
}

# Replace part of a page by a constant.
sub blank
{
	my ($page, $offset, $len) = @_;
	substr($$page, $offset, $len) = "\0" x $len if $len > 0;
	return;
}

sub mask_content
{
	my ($page) = @_;
	blank($page, HEADER, BLCKSZ - HEADER);
	blank($page, 12, 4);
	return;
}

sub mask_unused
{
	my ($page, $lower, $upper, $special) = @_;
	return
	  if $lower > $upper || $special < $upper || $lower < HEADER || $special > BLCKSZ;
	blank($page, $lower, $upper - $lower);
	return;
}

sub mask_lp_flags
{
	my ($page, $lower) = @_;
	return if $lower <= HEADER || $lower > BLCKSZ;
	my @lp = unpack('L*', substr($$page, HEADER, $lower - HEADER));
	for (@lp)
	{
		$_ &= ~(3 << 15) & 0xFFFFFFFF if ($_ >> 15) & 3;
	}
	substr($$page, HEADER, $lower - HEADER) = pack('L*', @lp);
	return;
}

# Tuples as heap_mask() masks them.
sub mask_heap_tuples
{
	my ($page, $lower) = @_;
	return if $lower <= HEADER || $lower > BLCKSZ;
	my @lp = unpack('L*', substr($$page, HEADER, $lower - HEADER));
	for my $lp (@lp)
	{
		my ($off, $flags, $len) = ($lp & 0x7FFF, ($lp >> 15) & 3, $lp >> 17);
		if ($flags == 1 && $off + $len <= BLCKSZ && $len >= 23)
		{
			my $infomask = unpack('S', substr($$page, $off + 20, 2));

			# HEAP_XMIN_FROZEN, or all of HEAP_XACT_MASK
			$infomask &= (($infomask & 0x0300) == 0x0300) ? ~0x0C00 : ~0xFFF0;
			substr($$page, $off + 20, 2) = pack('S', $infomask & 0xFFFF);
			blank($page, $off + 8, 4);    # t_cid

			# a speculative token
			blank($page, $off + 12, 6)
			  if unpack('S', substr($$page, $off + 16, 2)) == 0xFFFE;
		}
		if ($flags != 0 && $len > 0 && $len % 8 != 0)
		{
			my $pad = 8 - $len % 8;
			blank($page, $off + $len, $pad) if $off + $len + $pad <= BLCKSZ;
		}
	}
	return;
}

sub mask_page
{
	my ($page, $fork) = @_;
	return $page if $page !~ /[^\0]/;

	blank(\$page, 0, 10);    # pd_lsn, pd_checksum
	return $page if $fork eq 'vm';

	my ($flags, $lower, $upper, $special) = unpack('x10 SSSS', $page);

	# PD_HAS_FREE_LINES, PD_PAGE_FULL, PD_ALL_VISIBLE; pd_prune_xid
	substr($page, 10, 2) = pack('S', $flags & ~7);
	blank(\$page, 20, 4);

	my $kind = page_kind($page);
	my @space = ($lower, $upper, $special);
	if ($kind eq 'heap')
	{
		mask_unused(\$page, @space);
		mask_heap_tuples(\$page, $lower);
	}
	elsif ($kind eq 'btree')
	{
		mask_unused(\$page, @space);
		my $f = unpack('S', substr($page, $special + 12, 2));
		mask_lp_flags(\$page, $lower) if $f & 1;
		substr($page, $special + 12, 2) = pack('S', $f & ~(0x40 | 0x20));
		blank(\$page, $special + 14, 2);
	}
	elsif ($kind eq 'gist')
	{
		mask_unused(\$page, @space);
		blank(\$page, $special, 8);
		my $f = unpack('S', substr($page, $special + 12, 2));
		mask_lp_flags(\$page, $lower) if $f & 1;
		substr($page, $special + 12, 2) = pack('S', ($f | 8) & ~0x14);
	}
	elsif ($kind eq 'hash')
	{
		mask_unused(\$page, @space);
		my $f = unpack('S', substr($page, $special + 12, 2));
		my $type = $f & 0xF;
		if ($type == 0) { mask_content(\$page); return $page; }
		mask_lp_flags(\$page, $lower) if $type == 1 || $type == 2;
		substr($page, $special + 12, 2) = pack('S', $f & ~0x80);
	}
	elsif ($kind eq 'gin')
	{
		my $f = unpack('S', substr($page, $special + 6, 2));
		if ($f & 4) { mask_content(\$page) }
		elsif ($lower > HEADER) { mask_unused(\$page, @space) }
	}
	elsif ($kind eq 'spgist')
	{
		# lastUsedPages of the metapage is a cache, and changed without WAL
		if (unpack('S', substr($page, $special, 2)) & 1) { blank(\$page, HEADER + 4, $special - HEADER - 4) }
		elsif ($lower >= HEADER) { mask_unused(\$page, @space) }
	}
	elsif ($kind eq 'brin')
	{
		my ($f, $type) = unpack('SS', substr($page, $special + 4, 4));
		mask_unused(\$page, @space)
		  if $type == 0xF093 || ($type == 0xF091 && $lower > HEADER);
		substr($page, $special + 4, 2) = pack('S', $f & ~1);
	}
	elsif ($kind eq 'sequence')
	{
		mask_unused(\$page, @space);
	}
	return $page;
}

# For reports: line pointers and tuple headers of a heap page.
sub heap_tuples
{
	my ($page) = @_;
	my $lower = unpack('x12 S', $page);
	return () if $lower <= HEADER || $lower > BLCKSZ;
	my $n = 0;
	my @out;
	for my $lp (unpack('L*', substr($page, HEADER, $lower - HEADER)))
	{
		my ($off, $flags, $len) = ($lp & 0x7FFF, ($lp >> 15) & 3, $lp >> 17);
		my $s = sprintf('%d: lp %d %d+%d', ++$n, $flags, $off, $len);
		if ($flags == 1 && $off + 23 <= BLCKSZ)
		{
			my ($xmin, $xmax, $cid, $bh, $bl, $pos, $m2, $m) =
			  unpack('LLLSSSSS', substr($page, $off, 22));
			$s .= sprintf(' xmin %u xmax %u ctid (%u,%u) mask2 %04x mask %04x',
				$xmin, $xmax, ($bh << 16) | $bl, $pos, $m2, $m);
		}
		push @out, $s;
	}
	return @out;
}

sub fork_of { return $_[0] =~ /_(vm|init)(?:\.\d+)?$/ ? $1 : 'main'; }

# Visibility map: bits of b that a lacks, and the other way round.
sub vm_bits
{
	my ($a, $b) = @_;
	my ($x, $y) = (substr($a, HEADER), substr($b, HEADER));
	return (unpack('%32b*', $x & ~$y), unpack('%32b*', $y & ~$x));
}

# Returns { files, pages, unequal, hard => [...], soft => {...} }; each hard
# difference is { path, block, why, ... }.  Files for which $skip returns true are
# left out.  $hints is called for pages that differ, but are equal when masked.
sub compare_data_dirs
{
	my ($dir_a, $dir_b, $skip, $hints) = @_;
	my ($fa, $fb) = (relation_files($dir_a), relation_files($dir_b));
	my %r = (files => 0, pages => 0, unequal => 0, hard => [], soft => {}, lsn => []);
	my %all = (%$fa, %$fb);

	for my $path (sort keys %all)
	{
		next if $skip && $skip->($path);
		$r{files}++;
		my $fork = fork_of($path);
		if (!defined $fa->{$path} || !defined $fb->{$path})
		{
			push @{ $r{hard} },
			  { path => $path, block => 0,
				why => defined $fa->{$path} ? 'only in A' : 'only in B' };
			next;
		}
		push @{ $r{hard} },
		  { path => $path, block => 0,
			why => "length: A $fa->{$path}, B $fb->{$path}" }
		  if $fa->{$path} != $fb->{$path};

		open(my $ha, '<:raw', "$dir_a/$path") or die "$dir_a/$path: $!";
		open(my $hb, '<:raw', "$dir_b/$path") or die "$dir_b/$path: $!";
		my $first = 0;
		while (1)
		{
			my $na = read($ha, my $ca, CHUNK);
			my $nb = read($hb, my $cb, CHUNK);
			my $n = $na < $nb ? $na : $nb;
			last if !$n;
			$r{pages} += $n / BLCKSZ;
			if ($ca ne $cb)
			{
				for (my $o = 0; $o + BLCKSZ <= $n; $o += BLCKSZ)
				{
					my ($pa, $pb) = (substr($ca, $o, BLCKSZ), substr($cb, $o, BLCKSZ));
					next if $pa eq $pb;
					my $block = $first + $o / BLCKSZ;
					$block += 131072 * $1 if $path =~ /\.(\d+)$/;
					$r{unequal}++;
					if (mask_page($pa, $fork) ne mask_page($pb, $fork))
					{
						my $why = $fork eq 'vm'
						  ? sprintf('visibility map: %d bits only in A, %d only in B',
							vm_bits($pa, $pb))
						  : page_kind($pa);
						push @{ $r{hard} },
						  { path => $path, block => $block, why => $why,
							fork => $fork, a => $pa, b => $pb };
						next;
					}
					$hints->($path, $block, $fork, $pa, $pb) if $hints;
					if (page_lsn($pa) != page_lsn($pb))
					{
						my $which = page_lsn($pa) > page_lsn($pb) ? 'A' : 'B';
						my $key = "LSN newer in $which, $fork "
						  . ($fork eq 'vm' ? '' : page_kind($pa));
						push @{ $r{lsn} },
						  { path => $path, block => $block, why => $key,
							fork => $fork, a => $pa, b => $pb };
						$r{soft}{$key}++;
					}
					elsif ($fork eq 'main'
						&& ((unpack('x10 S', $pa) ^ unpack('x10 S', $pb)) & 4))
					{
						$r{soft}{ 'PD_ALL_VISIBLE only in '
							  . (unpack('x10 S', $pa) & 4 ? 'A' : 'B') }++;
					}
				}
			}
			$first += $n / BLCKSZ;
		}
	}
	return \%r;
}

# What pg_pcache verify --pages finds wrong with the pool (a file) of a cluster that is
# down.  Returns its exit status, that (undef if nothing), and all its output, which
# goes to a file.
sub verify_pages
{
	my ($bin, $data, $pool, $out) = @_;
	unlink $out;
	my $rc = run_to($out, "$bin/pg_pcache", 'verify', '--pages', '-D', $data);
	my $text = slurp($out);
	return ($rc, scalar wrong_pages($rc, $text, $pool), $text);
}

sub wrong_pages
{
	my ($rc, $text, $pool) = @_;
	return if $rc == 0 || $rc == 2;

	# vm_readbuf() and some index methods initialize a page of zeros without
	# making it dirty
	my @named = $text =~ /page in slot (\d+): impossible/g;
	my ($impossible) = $text =~ /^impossible:\s+(\d+)/m;
	return if $rc == 1 && @named && @named == $impossible && !grep { !is_empty_page($pool, $_) } @named;
	my @lines = grep { /error:|impossible|unreadable|checksum in file|next start/ } split /\n/, $text;
	return "exit status $rc: " . join('; ', @lines[ 0 .. ($#lines > 5 ? 5 : $#lines) ]);
}

# A page without LSN and contents, in a slot.
sub is_empty_page
{
	my ($pool, $slot) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	seek($fh, 104, 0);
	read($fh, my $blocks, 8);
	seek($fh, unpack('Q', $blocks) + 8192 * $slot, 0);
	read($fh, my $page, 8192);
	close $fh;
	my ($lsn, $lower, $special) = unpack('Q x4 S x2 S', $page);
	return $lsn == 0 && $lower == 24 && substr($page, 24, $special - 24) !~ /[^\0]/;
}

1;
