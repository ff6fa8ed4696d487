
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Compare - do two recoveries of the same crash agree?

=head1 DESCRIPTION

A is the one with the pool, B the one without.  PageCompare finds the pages that
differ; here is what they mean.

=cut

package Torture::Compare;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use DeadEntries;
use PageCompare;
use Programs;
use Torture::PoolFile;
use Torture::State;

our @EXPORT = qw(compare_files check_dead_entries check_pool_against_files report_differences);

# Compare the relation files of A and B.  Returns the result of PageCompare, and a
# reference to a list for check_dead_entries().
sub compare_files
{
	my ($a, $b) = @_;
	my @dead;
	my $result = compare_data_dirs($a, $b, undef, sub {
		my ($path, $block, $fork, @pages) = @_;
		my @tids = $fork eq 'main' ? dead_only_in_first(@pages) : ();
		push @dead, { path => $path, block => $block, tids => \@tids } if @tids;
	});
	return ($result, \@dead);
}

# Index entries that are marked as dead in A and not in B: { path, block, tids }.
# Their rows must be dead in B.
sub check_dead_entries
{
	my ($dead, $b, $known) = @_;
	my ($entries, $lost) = (0, 0);
	for my $d (@$dead)
	{
		(my $base = $d->{path}) =~ s/\.\d+$//;
		my $k = $known->{$base};
		next if !$k || $k->{persistence} ne 'p';
		for my $tid (@{ $d->{tids} })
		{
			$entries++;
			my $state = row_lives($b, $k->{heap}, @$tid) // next;
			problem("an index entry is marked as dead whose row is not: $k->{name} block $d->{block}, row $state") if $lost++ < 3;
		}
	}
	problem("index entries marked as dead whose rows are not: $lost") if $lost > 3;
	$totals{'entries dead only in A'} += $entries;
	return $entries;
}

# After a clean stop each page that a pool has an entry for must equal its file in $data.
sub check_pool_against_files
{
	my ($data, $pool, $who) = @_;
	my ($sb, $descs) = read_pool($pool);
	my $bad = 0;
	my %paths;
	for my $path (keys %{ relation_files($data) })
	{
		$paths{ tag_of($path) } = $path if $path !~ /\.\d+$/;
	}
	my %fh;
	for my $d (@$descs)
	{
		my ($rel, $fork, $block) = $d->{tag} =~ m{^(.*)/(\d+)/(\d+)$};
		next if $fork == 1;
		my $path = $paths{"$rel/$fork"} // next;
		my $disk = read_page("$data/$path", $block) // next;
		my ($x, $y) = ($d->{page}, $disk);
		substr($_, 8, 2) = "\0\0" for $x, $y;
		next if $x eq $y;
		my $name = (qw(main fsm vm init))[$fork];
		next if mask_page($x, $name) eq mask_page($y, $name);

		# vm_readbuf() initializes a page of zeros without making it dirty
		# so do GIN, SP-GiST and BRIN with new pages that they then do not use
		if ($y !~ /[^\0]/ && $d->{lsn} == 0)
		{
			my ($lower, $special) = unpack('x12 S x2 S', $x);
			next if $lower == 24 && substr($x, 24, $special - 24) !~ /[^\0]/;
		}
		problem(sprintf("\n      pool %s\n      file %s\n", unpack('H112', $x), unpack('H112', $y)) . sprintf('%s: kept page %s (%s) differs from its file: LSN in pool %s, in file %s; slot %d flags %d', $who, $d->{tag}, $path,
				format_lsn($d->{lsn}), format_lsn(page_lsn($disk)), $d->{slot}, $d->{flags})) if $bad++ < 3;
	}
	problem("$who: $bad kept pages differ from their files") if $bad > 3;
	return;
}

# Did the kill end a write between two pages of the kernel?  Then the file has the
# header of the new version, and the rest of the old one.  Without full_page_writes
# nothing mends that, and redo leaves the page alone because of its LSN.  Memory is
# not torn by a kill, so the page that was kept is right.
sub is_torn
{
	my ($d, $s, $crash_data) = @_;
	my $half = 4096;

	return 0 if $opt{whole} || $s->{conf}{full_page_writes} ne 'off' || !defined $d->{a} || !defined $d->{b};
	my $disk = read_page("$crash_data/$d->{path}", $d->{block} % 131072);
	return 0 if !defined $disk || page_lsn($disk) ne page_lsn($d->{a}) || page_lsn($disk) ne page_lsn($d->{b});
	my ($kept, $redone, $file) = map { mask_page($_, $d->{fork}) } $d->{a}, $d->{b}, $disk;
	return $file eq $redone && substr($kept, 0, $half) eq substr($redone, 0, $half);
}

# Is a page that differs no difference, because of what PostgreSQL does?
sub is_known
{
	my ($d, $base, $s, $soft, $crash_data) = @_;

	if (is_torn($d, $s, $crash_data))
	{
		$soft->{'file page torn by the kill, without full_page_writes'}++;
		return 1;
	}

	# FPI_FOR_HINT without an image (full_page_writes = off) sets the
	# page LSN when it is written, but not when it is replayed.  After a loss of power the
	# page that was kept may be one from before, and the file has the LSN.
	return 1
	  if $d->{why} =~ ($opt{whole} ? qr/LSN newer in [AB]/ : qr/LSN newer in A/)
	  && $s->{conf}{full_page_writes} eq 'off'
	  && ($s->{checksums} || $s->{conf}{wal_log_hints} eq 'on');

	# CREATE DATABASE with STRATEGY wal_log logs visibility maps as
	# standard pages, that is, without their contents
	# (RelationCopyStorageUsingBuffer); who has the page has the bits
	if (($d->{fork} // '') eq 'vm' && $base =~ m{/9[01]\d\d\d/} && $d->{why} =~ / 0 only in B|LSN newer in A/)
	{
		$soft->{'visibility map kept in a copied database'}++;
		return 1;
	}
	return 0;
}

# Say what a comparison has found, in a round with the plan $s.  $known is what
# relations() returned, $crash_data, $sb and $descs are data directory and pool as
# they were at the crash.
sub report_differences
{
	my ($result, $known, $s, $crash_data, $sb, $descs) = @_;
	my ($hard, $orphans, $lsn) = (0, 0, 0);
	my @report;
	for my $d (@{ $result->{hard} }, @{ $result->{lsn} })
	{
		(my $base = $d->{path}) =~ s/(?:_\w+)?(?:\.\d+)?$//;
		my $k = $known->{$base};
		if (!$k && $base !~ m{^base/(?:4|1)/}) { $orphans++; next }
		next if $k && $k->{persistence} eq 'u' && ($d->{fork} // '') ne 'init';
		next if is_known($d, $base, $s, $result->{soft}, $crash_data);
		$d->{why} =~ /LSN newer/ ? $lsn++ : $hard++;
		push @report, explain_page($d, $crash_data, $sb, $descs, $known) if @report < 40;
	}
	if ($hard || $lsn)
	{
		spew("$dir/report", join("\n", @report) . "\n");
		problem("$hard pages differ, $lsn more only in their LSN:\n      $_") for join("\n      ", @report[ 0 .. ($#report > 3 ? 3 : $#report) ]);
	}
	say_line(sprintf('    compared %d files, %d pages: %d bytewise unequal, %d differ, %d differ in LSN, %d in orphans; %s',
			$result->{files}, $result->{pages}, $result->{unequal}, $hard, $lsn, $orphans,
			join(', ', map { "$_: $result->{soft}{$_}" } sort keys %{ $result->{soft} })));
	return;
}

# A text with all that is known of a page that differs.
sub explain_page
{
	my ($d, $crash_data, $sb, $descs, $known) = @_;
	my $tag = tag_of($d->{path}) . "/$d->{block}";
	(my $base = $d->{path}) =~ s/(?:_\w+)?(?:\.\d+)?$//;
	my $k = $known->{$base};
	my $s = sprintf("%s block %d (%s): %s", $d->{path}, $d->{block},
		$k ? "$k->{name} $k->{kind} $k->{persistence}" : 'ORPHAN', $d->{why});
	if (defined $d->{a})
	{
		my $file = "$crash_data/$d->{path}";
		my $disk = read_page($file, $d->{block} % 131072);
		$s .= sprintf("\n      LSN A %s B %s, on disk at the crash %s",
			format_lsn(page_lsn($d->{a})), format_lsn(page_lsn($d->{b})),
			defined $disk ? format_lsn(page_lsn($disk)) : 'none');
		my $ma = mask_page($d->{a}, $d->{fork});
		my $mb = mask_page($d->{b}, $d->{fork});
		my @diff = grep { substr($ma, $_, 1) ne substr($mb, $_, 1) } 0 .. 8191;
		$s .= sprintf("\n      %d bytes differ, first at %d", scalar @diff, $diff[0]) if @diff;
	}
	my @found = grep { $_->{tag} eq $tag } @$descs;
	for my $f (@found)
	{
		$s .= sprintf("\n      pool at the crash: slot %d lsn %s; same as A: %s, as B: %s",
			$f->{slot}, format_lsn($f->{lsn}),
			(defined $d->{a} && mask_page($f->{page}, $d->{fork}) eq mask_page($d->{a}, $d->{fork}) ? 'yes' : 'no'),
			(defined $d->{b} && mask_page($f->{page}, $d->{fork}) eq mask_page($d->{b}, $d->{fork}) ? 'yes' : 'no'));
		$s .= ", $f->{verdict}" if defined $f->{verdict};
	}
	$s .= "\n      pool at the crash: not there" if !@found;
	return $s;
}

1;
