
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

LibraryPool - what a server with the library has left in its pool when it was killed

=head1 SYNOPSIS

  my $left = what_is_left($data, $pool) or return;
  print "$left->{kept} of $left->{found}, @{ $left->{wrong} }\n";

=head1 DESCRIPTION

The library's rule for such pages (JudgeEntry() in pool/pcache_judge.c), made once more
of the files, without the library: which pages a start is to keep, and whether each of
them is what its file has at that moment.  The latter is more than recovery asks for,
since redo may mend a page that is wrong.

Fields of what_is_left():

  found    buffers with a page that can have been written to its file
  kept     those of them that the rule keeps
  dropped  the others: reason => number, in the words of the library
  wrong    texts: pages that are kept, and that their files contradict
  late     true if pg_control was written after the server last looked at it
  dead     true if the pool says that a process died of a fault, or that read errors were
           ignored
  pages    what was found: a list of hashes with slot, tag, lsn, page, verdict
  young    of the dropped ones, what pcache.recovery = short may keep: all (number), dirty
           (number of those that are not in found), and sure (those whose LSN is not beyond
           the place up to which WAL was seen written)
  production  true if pg_control says so, on the timeline of that WAL

The offsets are those of storage/pcache_layout.h, and of pg_control as it is in all
versions.

=cut

package LibraryPool;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(stat);

use PageCompare;
use Programs;
use Superblock;

our @EXPORT = qw(what_is_left last_sighting shortened is_warm_by_young judge_start judge_after_power_loss may_be_cold present_pages);

use constant {
	BLCKSZ => 8192,
	SEGMENT => 131072,
	ALIGNMENT => 2 * 1024 * 1024,
	SIGHTING => 8192 + 256,
	READ_ERRORS => 8192 + 512,
	SUSPECT => 8192 + 192,
	MODE_ALWAYS => 2,
	SHUTDOWNED => 1,
	SHUTDOWNED_IN_RECOVERY => 2,
	IN_PRODUCTION => 6,
	GIST_BUILD_LSN => 1,

	# a file that was changed later than this after the server last said that it lives
	# was changed by somebody else
	TOLERANCE => 0.5,

	# the worker looks at pg_control when it is written, unless it does not get to run
	LATE => 2,

	# the kernel's clock for files is a little behind
	COARSE => 0.02,
};

sub bytes_at
{
	my ($fh, $offset, $length) = @_;
	seek($fh, $offset, 0);
	(read($fh, my $bytes, $length) // -1) == $length or return "\0" x $length;
	return $bytes;
}

# What a superblock says of the pool and of the headers of the server that used it.
sub layout_of
{
	my ($fh) = @_;
	my ($sb) = read_superblock($fh);
	my %l;
	@l{qw(capacity blocks slots)} = unpack('x88 Q x8 QQ', $sb);
	@l{qw(state mode)} = unpack('x120 LL', $sb);
	@l{qw(tag state_at lock_at present dirty in_change permanent usage_mask usage_one lock_held)} = unpack('x1784 SSS x2 L7', $sb);
	my $ledger_end = ALIGNMENT + 64 * $l{capacity};
	$l{headers} = $ledger_end + (-$ledger_end) % ALIGNMENT;
	return \%l;
}

# All buffers with a page of a pool whose server has ended, whatever becomes of them: a
# list of hashes.
sub present_pages
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	my $l = layout_of($fh);
	my $headers = $l->{present} ? bytes_at($fh, $l->{headers}, 64 * $l->{slots}) : '';
	my @pages;
	for my $slot (0 .. length($headers) / 64 - 1)
	{
		my $header = substr($headers, 64 * $slot, 64);
		my $state = unpack('L', substr($header, $l->{state_at}, 4));
		next if ($state & $l->{present}) != $l->{present};
		my ($spc, $db, $rel, $fork, $block) = unpack('LLLlL', substr($header, $l->{tag}, 20));
		my $lock = unpack('L', substr($header, $l->{lock_at}, 4));
		push @pages, { slot => $slot, spc => $spc, db => $db, rel => $rel, fork => $fork, block => $block, at => $l->{blocks} + BLCKSZ * $slot,
			tag => "$spc/$db/$rel/$fork/$block", dirty => $state & $l->{dirty}, permanent => $state & $l->{permanent},
			in_change => $state & $l->{in_change} || $lock & $l->{lock_held} };
	}
	close $fh;
	return @pages;
}

# The same of a start that was killed after it had judged these buffers, and before it had
# filled them: the ledger has what is left of them.
sub saved_pages
{
	my ($fh, $l) = @_;
	my $ledger = bytes_at($fh, ALIGNMENT, 64 * $l->{slots});
	my @pages;
	for my $slot (0 .. length($ledger) / 64 - 1)
	{
		my ($seq, $spc, $db, $rel, $fork, $block, $at, $version, $flags) = unpack('Q x16 LLLlLLSS', substr($ledger, 64 * $slot, 64));
		next if $seq & 1 || !$version || $at != $slot;
		push @pages, { slot => $slot, spc => $spc, db => $db, rel => $rel, fork => $fork, block => $block, at => $l->{blocks} + BLCKSZ * $slot,
			tag => "$spc/$db/$rel/$fork/$block", dirty => 0, permanent => $flags & 1, in_change => 0 };
	}
	return @pages;
}

# The last thing that the server saw of its cluster: when, the checkpoint, up to where WAL was
# written, and its timeline.
sub last_sighting
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	my ($best, $seen_at, $checkpoint, $written, $timeline) = (0, 0, 0, 0, 0);
	for my $i (0, 1)
	{
		my $bytes = bytes_at($fh, SIGHTING + 128 * $i, 128);
		my ($number, undef, $at_checkpoint, $ns) = unpack('QQQq', $bytes);
		next if $number <= $best || unpack('L', substr($bytes, 124)) != crc32c(substr($bytes, 0, 124));
		($best, $seen_at, $checkpoint) = ($number, $ns / 1e9, $at_checkpoint);
		($written, $timeline) = unpack('x32 Q x16 L', $bytes);
	}
	return ($seen_at, $checkpoint, $written, $timeline);
}

# The files of a fork: the number of its blocks, and when it was last changed; undef if
# there is none.
sub stat_fork
{
	my ($data, $p) = @_;
	my ($version) = $p->{spc} == 1663 || $p->{spc} == 1664 ? '' : map { s{.*/}{}r } glob "$data/pg_tblspc/$p->{spc}/PG_*";
	my $path = ($p->{spc} == 1664 ? 'global' : $p->{spc} == 1663 ? "base/$p->{db}" : "pg_tblspc/$p->{spc}/" . ($version // 'PG') . "/$p->{db}")
	  . "/$p->{rel}" . ('', '_fsm', '_vm', '_init')[ $p->{fork} ];
	my ($blocks, $changed) = (0, 0);
	for (my $segment = 0; $blocks == $segment * SEGMENT; $segment++)
	{
		my @stat = stat("$data/$path" . ($segment ? ".$segment" : ''));
		return if !@stat && !$segment;
		last if !@stat;
		$blocks += int($stat[7] / BLCKSZ);
		$changed = $stat[10] if $stat[10] > $changed;
	}
	return { path => "$data/$path", blocks => $blocks, changed => $changed };
}

# The library's rule, but for the file.
sub verdict_of_entry
{
	my ($p, $control_state, $redo) = @_;
	return 'dirty' if $p->{dirty};
	return 'in change' if $p->{in_change};
	return 'unlogged' if !$p->{permanent};
	return 'kept' if $control_state == SHUTDOWNED;
	return 'not a main fork' if $p->{fork} != 0;
	return 'no LSN' if $p->{lsn} <= GIST_BUILD_LSN;
	return 'younger than redo' if $p->{lsn} >= $redo;
	return 'kept';
}

# PCacheYoungGate(), but for the file and the end of WAL.
sub may_be_young
{
	my ($p, $redo) = @_;
	return ($p->{dirty} || $p->{lsn} >= $redo) && !$p->{in_change} && $p->{permanent} && $p->{fork} == 0 &&
	  $p->{lsn} > GIST_BUILD_LSN && unpack('x16 S', $p->{page}) == BLCKSZ;
}

# Does the file contradict a page that is kept?  A map, and a page that an index has
# initialized for later, may be in memory only.
sub contradiction
{
	my ($p, $file) = @_;
	open(my $fh, '<:raw', $file->{path} . ($p->{block} < SEGMENT ? '' : '.' . int($p->{block} / SEGMENT))) or return "cannot be read: $!";
	my $disk = bytes_at($fh, BLCKSZ * ($p->{block} % SEGMENT), BLCKSZ);
	close $fh;
	my ($x, $y) = ($p->{page}, $disk);
	substr($_, 8, 2) = "\0\0" for $x, $y;
	return if $x eq $y || $p->{fork} == 1;
	return if $y !~ /[^\0]/ && $p->{lsn} == 0;
	return sprintf('LSN %s, in the file %s', format_lsn($p->{lsn}), format_lsn(page_lsn($disk))) if page_lsn($disk) != $p->{lsn};
	my $name = (qw(main fsm vm init))[ $p->{fork} ];
	($x, $y) = map { mask_page($_, $name) } $x, $y;
	return if $x eq $y;
	my @diff = grep { substr($x, $_, 1) ne substr($y, $_, 1) } 0 .. BLCKSZ - 1;
	return sprintf('%s page, same LSN %s, %d bytes differ, first at %d', page_kind($disk), format_lsn($p->{lsn}), scalar @diff, $diff[0]);
}

# See the head.  Nothing if that pool was not left in use in mode always, or if all of it was
# saved by a clean stop.
sub what_is_left
{
	my ($data, $pool) = @_;
	open(my $fh, '<:raw', $pool) or return;
	my $l = layout_of($fh);
	my $control = slurp("$data/global/pg_control");
	my ($control_state, $checkpoint, $redo, $timeline) = unpack('x16 L x12 QQL', $control);
	my $is_saved = $l->{state} == STATE_CLEAN && $control_state != SHUTDOWNED && $control_state != SHUTDOWNED_IN_RECOVERY;
	return if $l->{mode} != MODE_ALWAYS || $l->{state} != STATE_DIRTY && !$is_saved;
	my ($seen_at, $seen_checkpoint, $wal_written, $wal_timeline) = last_sighting($pool);
	my $judge_files = $control_state != SHUTDOWNED && $control_state != SHUTDOWNED_IN_RECOVERY;
	my $written_at = (stat("$data/global/pg_control"))[9];
	my %left = (found => 0, kept => 0, dropped => {}, wrong => [], pages => [], young => { all => 0, dirty => 0, sure => 0 },
		production => !$is_saved && $control_state == IN_PRODUCTION && $timeline == $wal_timeline,
		late => $seen_checkpoint != $checkpoint || $written_at > $seen_at - COARSE,
		written_at => $written_at, dead => unpack('Q', bytes_at($fh, READ_ERRORS, 8)) || unpack('Q', bytes_at($fh, SUSPECT, 8)));
	my %files;
	for my $p ($is_saved ? saved_pages($fh, $l) : present_pages($pool))
	{
		$p->{page} = bytes_at($fh, $p->{at}, BLCKSZ);
		$p->{lsn} = page_lsn($p->{page});
		my $verdict = verdict_of_entry($p, $control_state, $redo);
		my $is_young = $left{production} && may_be_young($p, $redo);
		my $file;
		if ($verdict eq 'kept' || $is_young)
		{
			my $key = "$p->{spc}/$p->{db}/$p->{rel}/$p->{fork}";
			$files{$key} = stat_fork($data, $p) if !exists $files{$key};
			$file = $files{$key};
			my $place = !$file ? 'no file'
			  : $judge_files && $file->{changed} > $seen_at + TOLERANCE ? 'file changed'
			  : $p->{block} >= $file->{blocks} ? 'beyond the end of its file'
			  : 'kept';
			if (!$is_young) { $verdict = $place }
			elsif ($place eq 'kept')
			{
				$left{young}{all}++;
				$left{young}{dirty}++ if $p->{dirty};
				$left{young}{sure}++ if $p->{lsn} <= $wal_written;
			}
		}
		$p->{verdict} = $verdict;
		$left{found}++ if $verdict !~ /^(?:dirty|in change)$/;
		push @{ $left{pages} }, $p;
		if ($verdict ne 'kept') { $left{dropped}{$verdict}++; next }
		$left{kept}++;
		my $why = contradiction($p, $file) // next;
		push @{ $left{wrong} }, "slot $p->{slot}, page $p->{tag} of " . substr($file->{path}, 1 + length $data) . ": $why";
	}
	close $fh;
	return \%left;
}

=pod

=head1 JUDGING A START

judge_start($left, $line, fewer => 0 or 1, killed_at => time) tells what the start, whose
outcome is a line of the log, does not do as it should, or undef.  It also returns a word for
a count of what has happened.  fewer: the start has another number of buffers.  short: what
shortened() has found in its log, if pcache.recovery is short.

shortened($text) tells what a log says of the last start in it, a reference to a hash: young
(number of pages), skipped and called (numbers of records), refused (true if WAL could not be
read as far as it was written).

=cut

sub shortened
{
	my ($text) = @_;
	my ($before, $last) = ('', '', split /persistent cache: (?=kept \d|starting cold)/, $text)[ -2, -1 ];
	my ($young) = $last =~ /persistent cache: (\d+) of these pages are younger than the redo point/;
	my ($skipped, $called) = $last =~ /persistent cache: recovery skipped (\d+) records, .* replayed (\d+) others/;
	return { young => $young // 0, skipped => $skipped // 0, called => $called // 0,
		refused => $before =~ /persistent cache: recovery will not be shortened/ ? 1 : 0 };
}

# pg_pcache knows of no young pages.  So is this a start that is cold without them?
sub is_warm_by_young
{
	my ($line, $text) = @_;
	return $line =~ /^kept (\d+)/ && $1 > 0 && $1 == shortened($text)->{young};
}

# Is this a number of young pages that a start may have kept?  Returns what is wrong, or undef.
sub judge_young
{
	my ($left, $n, %how) = @_;
	my $young = $left->{young};
	return $n ? "$n young pages are kept, although recovery is not short" : undef if !$how{short};
	return $n ? "$n young pages are kept, although pg_control does not say \"in production\"" : undef if !$left->{production};
	return "$n young pages are kept of $young->{all}" if $n > $young->{all};
	return if $how{fewer} || $how{short}{refused};
	return $n < $young->{sure} ? "$n young pages are kept of $young->{sure} whose WAL was written" : undef;
}

sub judge_start
{
	my ($left, $line, %how) = @_;
	my $n = $how{short} ? $how{short}{young} : 0;
	if ($line =~ /^kept (\d+) of (\d+)/)
	{
		my ($kept, $found) = ($1 - $n, $2);
		my $wrong = judge_young($left, $n, %how);
		return ($wrong, 'warm') if defined $wrong;

		# so many of them were dirty, at least and at most
		my $clean = $left->{young}{all} - $left->{young}{dirty};
		my ($least, $most) = ($n > $clean ? $n - $clean : 0, $n < $left->{young}{dirty} ? $n : $left->{young}{dirty});
		return ("kept $kept pages, $left->{kept} were to be kept", 'warm')
		  if $how{fewer} ? $kept > $left->{kept} : $kept != $left->{kept};
		return ("found $found pages, there were $left->{found}", 'warm')
		  if $found < $left->{found} + $least || $found > $left->{found} + $most;
		return (undef, 'warm after a kill, with young pages') if $n;
		return (undef, $kept ? 'warm after a kill' : 'nothing to keep after a kill');
	}
	return (undef, 'cold: nothing could be kept') if $line =~ /^starting cold: none of the \d+ saved pages can be kept/ && ($how{fewer} || !$left->{kept});
	return (undef, 'cold: a prepared transaction') if $line =~ /^starting cold: a prepared transaction was rolled back/;
	return (undef, 'cold: nothing was found') if $line =~ /^starting cold: the last server (?:left|saved) no page/ && !$left->{found};
	return ($left->{written_at} < ($how{killed_at} // 0) - LATE ? sprintf('pg_control was written %.1f s before, %s', $how{killed_at} - $left->{written_at}, $line) : undef, 'cold: killed before pg_control was looked at')
	  if $left->{late} && $line =~ /^starting cold: (?:the pool knows of checkpoint|the control file is not what the pool's server last saw)/;
	return (undef, 'cold: a process died of a fault') if $left->{dead} && $line =~ /^starting cold: .*(?:and may have overwritten cached pages|pages may have been read with)/;
	return ($line, 'cold');
}

# The same of a start after a loss of power.  What has reached the media is up to chance, and
# whether that is right, the comparison with a start without the pool has to tell.  ledger:
# true if pages are listed, because hint bits and all relations are logged; failed: if a start
# before this one ended with an error; was_judging: if it was killed before it said what it keeps.
sub judge_after_power_loss
{
	my ($line, %how) = @_;
	return (undef, 'warm after a loss of power') if $line =~ /^kept [1-9]/ && $how{ledger};
	return (undef, 'nothing there after a loss of power')
	  if $line =~ /^starting cold: (?:none of the \d+ saved pages can be kept|the last server (?:left|saved) no page)/;
	# a clean stop
	return (undef, 'warm after a clean stop and a loss of power') if $line =~ /^kept [1-9]/;
	return (undef, 'cold after a loss of power: nothing is listed')
	  if $line =~ /^starting cold: the host was restarted, and the server was not shut down cleanly/ && !$how{ledger};
	return (undef, 'cold: a start had failed') if $line =~ /^starting cold: a server process .* may have overwritten/ && $how{failed};
	return (undef, 'cold: a start was killed while it judged') if $line =~ /^starting cold: the host was restarted since the pool of a killed server was judged/ && $how{was_judging};
	return ($line, 'cold after a loss of power');
}

# Is a start after a kill cold for a reason that is nobody's fault, as far as the line of the
# log tells?  For who does not know what was left.
sub may_be_cold
{
	my ($line) = @_;
	return $line =~ /^starting cold: (?:the pool knows of checkpoint|the control file is not what the pool's server last saw|none of the \d+ saved pages can be kept|the last server left no page|a prepared transaction was rolled back)/;
}

1;
