
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Round - what happens in one round?

=head1 DESCRIPTION

A cluster works and crashes, recovers, and crashes again.  What the last crash
leaves is copied twice: A recovers with a copy of the pool, and B without one.
Then all of both is compared, A is stopped and started, and works on.

=cut

package Torture::Round;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Path qw(make_path remove_tree);
use Time::HiRes qw(sleep time);

use LibraryPool;
use PageCompare qw(verify_pages);
use Programs;
use Superblock;
use Torture::Compare;
use Torture::Contents;
use Torture::Crash;
use Torture::Load;
use Torture::Log;
use Torture::Plan;
use Torture::PoolFile;
use Torture::PowerCut;
use Torture::Processes;
use Torture::Server;
use Torture::State;
use Workload qw(:DEFAULT pick);

our @EXPORT = qw(one_round);

# Returns whether the round has passed.  Its files are in $dir.
sub one_round
{
	my ($round) = @_;
	my $seed = $round_seed = $opt{seed} + $round;
	srand($seed);
	$dir = "$work/r$round";
	$port = $opt{port};
	@problems = ();
	remove_tree($dir);
	make_path($dir);

	my $s = make_plan();
	say_line(plan_text($round, $s));
	count_plan($s);
	set_up($s);
	for my $cycle (1 .. $s->{cycles})
	{
		last if !crash_and_recover($cycle, $s);
	}
	if (!@problems && $s->{kill} ne 'recovery')
	{
		start_load($s, 0);
		sleep($s->{duration});
		crash("$dir/data", $s->{kill}, $s);
		end_load();
		kill_again($s) if $s->{again};
	}
	elsif (@problems) { kill_all("$dir/data") }
	check_log("$dir/server.log", 'server');
	$s->{power_lost} = cut_power("$dir/pool", $s);
	return !@problems if $opt{'pool-only'} || @problems && !-e "$dir/pool/pool";

	my ($sb, $descs) = check_crashed_pool($s);
	copy_crashed();
	my ($ok_a, $ok_b) = recover_both($s) or return !@problems;
	my $cold = judge_recovery($s, $descs);
	compare_both($s, $cold, $sb, $descs) if $ok_a && $ok_b;
	say_line("    superblock: " . join(', ', map { "$_ $sb->{$_}" } sort keys %$sb)) if @problems;
	return !@problems;
}

# Make the cluster and its pool, and start it with the tables that the load wants.
sub set_up
{
	my ($s) = @_;
	my ($data, $log) = ("$dir/data", "$dir/server.log");
	copy_dir(template($s->{checksums}, $s->{segsize}), $data);
	write_conf($data, $s);
	make_path("$dir/images");
	make_path("$dir/pool", { mode => 0700 }) if $opt{whole};
	keep_files("$dir/pool");
	with_shim("$dir/pool", sub { must_run("$bin/pg_pcache", 'init', '-D', $data, "--directory=$dir/pool") });
	start_server($data, $log) == 0 or die "first start failed: " . slurp($log);
	spew("$dir/setup.sql", setup_sql());
	run_to("$dir/setup.out", "$bin/psql", '-Xq', '-p', $port, '-f', "$dir/setup.sql");
	psql('postgres', 'CREATE TABLE acknowledged (id text)') if $opt{whole};
	run_to("$dir/pgbench-init.out", "$bin/pgbench", '-i', '-q', '-s', $s->{scale}, '-I', pick('dtGvp', 'dtgvp', 'dtgpf'), '-p', $port);
	return;
}

# A crash before the last one, followed by a recovery in place; in a round with
# kill "recovery" the last of these recoveries is what is killed.  Returns false
# if the server does not recover.
sub crash_and_recover
{
	my ($cycle, $s) = @_;
	my ($data, $log) = ("$dir/data", "$dir/server.log");
	start_load($s, $cycle);
	sleep($s->{duration} / 2);
	my $kind = $s->{kill} eq 'recovery' ? 'all' : pick('all', 'immediate', 'backend', 'worker');
	$kind = pick('site', $kind) if $opt{whole};
	$kind = $kind ne 'worker' ? pick('stop', $kind) : 'stop' if $s->{mode} eq 'planned_restart';
	$kind = pick($kind, $kind, 'checkpointer', 'checkpoint', 'stop') if $s->{mode} eq 'always' && $s->{kill} ne 'recovery';
	crash($data, $kind, $s);
	end_load();
	# what is not synced may wait for the next cut
	$s->{power_lost} = 0;
	if ($opt{whole} && rand() < 0.25)
	{
		say_line('    the kernel survives');
		unlink "$dir/pool.image.ctl";
	}
	else { $s->{power_lost} = cut_power("$dir/pool", $s) }
	return 0 if !-e "$dir/pool/pool";
	append_conf($data, next_buffers($s)) if $s->{fewer};
	my $left = look_at_killed("after crash $cycle ($kind)", $data, "$dir/pool", $s);
	if ($s->{kill} eq 'recovery' && $cycle == $s->{cycles})
	{
		my $from = -s $log;
		$kind = crash_in_recovery(pick(rand 0.3, rand 1.0, rand 2.5));
		$s->{killed_at} = time;
		# it may have failed by itself before
		$s->{first_failed} = 1 if (split /starting PostgreSQL/, slurp($log))[-1] =~ $TOMBSTONE;
		# or not come so far as to say what it keeps
		$s->{was_judging} = substr(slurp($log), $from) !~ /persistent cache: (?:kept|starting cold)/;
		say_line("    cycle $cycle: killed all, then $kind");
		return 1;
	}
	my $without = was_cut_off("$dir/pool/pool");
	my $failed = start_server($data, $log) != 0;
	if ($failed && (split /starting PostgreSQL/, slurp($log))[-1] =~ $TOMBSTONE)
	{
		say_line("    cycle $cycle: does not start at first: an unlogged table was being created");
		$totals{'does not start at first'}++;
		$s->{first_failed} = 1;
		$failed = start_server($data, $log) != 0;
	}
	if ($failed)
	{
		problem("recovery after crash $cycle ($kind) failed");
		return 0;
	}
	say_line("    cycle $cycle: killed $kind, " . join(' ', outcome($log)));
	judge_start_after("after crash $cycle", $kind, $log, $s, $without, $left);
	rollback_prepared() if rand() < 0.7;
	return 1;
}

# A setting that is half of the first shared_buffers, and then the same again.
sub next_buffers
{
	my ($s) = @_;
	my ($mb) = $s->{shared_buffers} =~ /^(\d+)MB$/ or die "shared_buffers is not in MB";
	$s->{halved} = !$s->{halved};
	return 'shared_buffers=' . ($s->{halved} ? $mb / 2 : $mb) . 'MB';
}

# After the last crash.
sub kill_again
{
	my ($s) = @_;
	$s->{power_lost} = 0;
	look_at_killed("after a $s->{kill}", "$dir/data", "$dir/pool", $s);
	say_line('    killed again, ' . crash_in_recovery(rand pick(0.02, 0.1), qr/redo starts at/));
	$s->{killed_at} = time;
	return;
}

# Crash again while recovery runs, or soon after: so many seconds after the start, or after
# the log has said something.  Returns a text.
sub crash_in_recovery
{
	my ($wait, $said) = @_;
	my ($data, $log) = ("$dir/data", "$dir/server.log");
	my $size = -s $log;
	my $kind;
	say_line('    armed: ' . arm_shim("$dir/pool", random_site(), most => 300)) if $opt{whole} && !$dram && rand() < 0.5;
	my $pid = with_shim("$dir/pool",
		sub { start_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-l', $log, '-w', 'start') });
	my $deadline = time + 20;
	sleep 0.005 while !postmaster_pid($data) && time < $deadline;
	sleep 0.002 while $said && slurp($log, $size) !~ /$said|ready to accept|FATAL/ && time < $deadline;
	sleep $wait;
	my $pm = postmaster_pid($data) // 0;
	my $p = $pm && -e "/proc/$pm" ? server_processes($pm) : {};
	my ($startup) = grep { $p->{$_} =~ /postgres: startup/ } keys %$p;
	if ($startup && rand() < 0.5 && kill_live($startup))
	{
		$kind = sprintf('startup process %.2f s into recovery', $wait);
		wait_gone($data, [ keys %$p ]);
		forget_pid($data);
	}
	else
	{
		$kind = sprintf('all %.2f s after the start of recovery%s', $wait, $startup ? ', during it' : '');
		%$p ? kill_all($data) : forget_pid($data);
	}
	waitpid($pid, 0);
	return $kind;
}

# What is wrong with the pool before anybody has recovered?  Returns what
# read_pool() returns.
sub check_crashed_pool
{
	my ($s) = @_;
	my ($sb, $descs) = read_pool("$dir/pool/pool");
	$s->{left} = look_at_killed('after the last crash', "$dir/data", "$dir/pool", $s);

	# entries are of the last clean stop
	$descs = $s->{left}{pages} if $s->{left};
	my %tags;
	$tags{ $_->{tag} }++ for @$descs;
	my @twice = grep { $tags{$_} > 1 } keys %tags;
	problem("in the pool twice: @twice") if @twice;
	return ($sb, $descs);
}

# What has a server left that was killed in mode always?  Each page that is to
# be kept must be what its file has.  Nothing if there is nothing to be judged.  After a loss of
# power pg_pcache has to tell.
sub look_at_killed
{
	my ($who, $data, $pool, $s) = @_;
	return if $s->{power_lost};
	my $left = what_is_left($data, "$pool/pool") // return;
	my @wrong = @{ $left->{wrong} };
	problem("$who: a page that is to be kept is not what its file has: $_") for @wrong[ 0 .. ($#wrong > 3 ? 3 : $#wrong) ];
	problem("$who: there are $#wrong more such pages") if @wrong > 4;
	say_line("    left $left->{found}, to be kept $left->{kept}, " . join(', ', map { "$_ $left->{dropped}{$_}" } sort keys %{ $left->{dropped} }));
	$totals{'pages compared with their files'} += $left->{kept};
	return $left;
}

# A gets a copy of the data directory and of the pool, B one of the data directory.  In fact
# the copy is what stays, since the start tells by the files of A that nobody has
# changed them, and takes no copy of a pool that was in use.
sub copy_crashed
{
	my ($a, $b) = ("$dir/a", "$dir/b");
	rename("$dir/data", $a) or die "$dir/data: $!";
	copy_dir($a, "$dir/data");
	rename("$dir/pool", "$dir/pool-a") or die "$dir/pool: $!";
	copy_dir("$dir/pool-a", "$dir/pool");
	copy_dir("$dir/$_", "$dir/" . s/^pool/pool-a/r) for grep { -e "$dir/$_" } qw(pool.image pool.image.boot pool.image.cut);
	append_conf($a, "pcache.directory = '$dir/pool-a'");
	copy_dir("$dir/data", $b);
	keep_files("$dir/pool-a");
	unlink "$_/postmaster.pid" for $a, $b;
	return;
}

# Returns which of them have recovered, A and B; or nothing if neither has, because
# of what PostgreSQL does.  They are down afterwards.
sub recover_both
{
	my ($s) = @_;
	my ($a, $b) = ("$dir/a", "$dir/b");
	my ($ok_a, $ok_b);
	$s->{without} = was_cut_off("$dir/pool-a/pool");
	$s->{foretold} = foretell($a);
	# the starts of A after this one have as many buffers as the crashed server
	$ok_a = start_server($a, "$dir/a.log", @QUIET, $s->{fewer} ? next_buffers($s) : ()) == 0;
	stop_server($a, 'fast') == 0 or problem('A does not stop') if $ok_a;
	$ok_b = start_without_pool($b);
	if (!$ok_a && !$ok_b && 2 == grep { slurp("$dir/$_.log") =~ $TOMBSTONE } qw(a b))
	{
		say_line('    neither starts at first: an unlogged table was being created');
		$totals{'neither starts at first'}++;
		return;
	}
	problem('recovery with the pool failed: ' . substr(slurp("$dir/a.log"), -1500)) if !$ok_a;
	problem('recovery without the pool failed: ' . substr(slurp("$dir/b.log"), -1500)) if !$ok_b;
	stop_server($b, 'fast') == 0 or problem('B does not stop') if $ok_b;
	return ($ok_a, $ok_b);
}

# Start B.  It runs without the shim, so nothing is persistent memory.
sub start_without_pool
{
	my ($b) = @_;
	return start_server($b, "$dir/b.log", @QUIET, $server->without_pool, $opt{whole} ? ('wal_sync_method=fdatasync', 'fsync=off') : ()) == 0;
}

# How was A's start: as it is to be after such a crash?  Returns whether it was
# cold.
sub judge_recovery
{
	my ($s, $descs) = @_;
	check_log("$dir/a.log", 'A');
	check_log("$dir/b.log", 'B');
	my ($line, $dropped) = outcome("$dir/a.log");
	say_line(sprintf('    %d pages; A: %s %s', scalar @$descs, $line, $dropped));
	say_line(sprintf('    redo: A %s s, B %s s', redo_seconds("$dir/a.log"), redo_seconds("$dir/b.log")));
	my $cold = $line !~ /^kept [1-9]/;
	judge_start_after('A', $s->{kill}, "$dir/a.log", $s, $s->{without}, $s->{left});
	problem('pg_pcache verify foretold a ' . ($s->{foretold} ? 'warm' : 'cold') . " start; the log: $line") if $s->{foretold} != ($line =~ /^kept/ ? 1 : 0) && ($s->{foretold} || !is_warm_by_young($line, slurp("$dir/a.log")));
	$totals{'kept pages'} += $1 if $line =~ /^kept (\d+)/;
	return $cold;
}

# Does pg_pcache say that the next start of a server that is down is warm?  It also compares
# the pages that will be kept with their files.
sub foretell
{
	my ($data) = @_;
	my ($rc, $wrong) = with_shim("$dir/pool-a", sub { verify_pages($bin, $data, "$dir/pool-a/pool", "$dir/verify-crashed.out") });
	problem("pg_pcache verify --pages after the crash: $wrong") if defined $wrong;
	$totals{"verify --pages after the crash: status $rc"}++;
	return $rc == 0 ? 1 : 0;
}

# How was the last start in a log, as it is to be after an end of this kind?  $left is what
# look_at_killed() has found.  A start that was killed has perhaps not come to the pool.
sub judge_start_after
{
	my ($who, $kind, $log, $s, $without, $left) = @_;
	my ($line) = outcome($log);
	my $short = short_recovery($log, $s);
	problem("$who, $kind: young pages after a loss of power") if $s->{power_lost} && $short && $short->{young};
	if ($s->{power_lost} && $s->{mode} eq 'always' && $kind ne 'stop' && !$without)
	{
		my ($wrong, $what) = judge_after_power_loss($line, ledger => ($s->{checksums} || $s->{conf}{wal_log_hints} eq 'on') && $s->{conf}{wal_level} ne 'minimal', failed => delete $s->{first_failed}, was_judging => delete $s->{was_judging});
		$totals{$what}++;
		problem("$who, $kind: $wrong") if defined $wrong;
		return;
	}
	if ($left && !$without)
	{
		my ($wrong, $what) = judge_start($left, $line, short => $short, fewer => $s->{fewer}, killed_at => $s->{killed_at});
		$totals{$what}++;
		say_line(sprintf('    %s: pg_control was written %.2f s before the kill: %s', $who, $s->{killed_at} - $left->{written_at}, $line)) if $what =~ /pg_control/;
		problem("$who, $kind: $wrong; it was to keep $left->{kept} of $left->{found}") if defined $wrong;
		return;
	}
	# a stop may have come to its end before it was cut off
	my ($warm, $cold) = (qr/^kept [1-9]/, qr/^starting cold: the server was not shut down cleanly/);
	my $expected = $without ? qr/^$/ : $kind =~ /^(?:stop|reboot)$/ ? $warm : $kind =~ /^(?:save|stopping|recovery)$/ ? qr/$warm|$cold/ : $cold;
	$totals{ $without ? 'cold: without the pool' : $line =~ /^kept/ ? 'warm' : 'cold: no clean stop' }++;
	problem("$who, $kind: " . ($without // 'the pool is in order') . ", the log: $line") if $line !~ $expected;
	return;
}

# A and B against each other, and A after more starts.
sub compare_both
{
	my ($s, $cold, $sb, $descs) = @_;
	my ($a, $b) = ("$dir/a", "$dir/b");
	my @acknowledged = acknowledged();
	my ($result, $dead_in_a) = compare_files($a, $b);

	# A from its pool, B from its files
	if (!start_without_pool($b)) { problem('B does not start again') }
	check_acknowledged('B', @acknowledged) if $opt{whole};
	rollback_prepared();
	my $cb = contents();
	my $known = relations();
	stop_server($b, 'fast');
	my $dead = check_dead_entries($dead_in_a, $b, $known);
	say_line("    index entries that are dead in A only: $dead") if $dead;

	cut_power("$dir/pool-a", $s);
	check_pool('A') if !$s->{without};
	unlink "$dir/a2.log";
	if (start_server($a, "$dir/a2.log", @QUIET) != 0) { problem('A does not start again') }
	my ($again) = outcome("$dir/a2.log");
	# a server that starts cold may be stopped before it has read a page
	my $may_be = $s->{without} ? qr/^starting cold/ : $cold ? qr/^kept \d|^starting cold: the last server saved no page when/ : qr/^kept [1-9]/;
	problem("A is not warm after a clean stop: $again") if $again !~ $may_be;
	rollback_prepared();
	compare_contents(contents(), $cb, 'A after a clean stop, and B');
	check_sums('A');
	check_acknowledged('A', @acknowledged) if $opt{whole};
	check_indexes('A');
	amcheck('A');

	go_on_with_a($s);
	report_differences($result, $known, $s, "$dir/data", $sb, $descs);
	return;
}

# After a clean stop of A: by the test, and by the program that users have.
sub check_pool
{
	my ($who) = @_;
	my $pool = "$dir/pool-a";
	check_pool_against_files("$dir/a", "$pool/pool", $who);
	my ($rc, $wrong) = with_shim($pool, sub { return verify_pages($bin, "$dir/a", "$pool/pool", "$dir/verify-pages.out") });
	problem("$who: pg_pcache verify --pages: $wrong") if defined $wrong;
	$totals{"verify --pages: status $rc"}++;
	return;
}

# Go on working, stop, start.
sub go_on_with_a
{
	my ($s) = @_;
	my $a = "$dir/a";
	start_load($s, 99);
	sleep 1;
	end_load();
	rollback_prepared();
	stop_server($a, 'fast') == 0 or problem('A does not stop');
	check_pool('A, second stop');
	if (start_server($a, "$dir/a2.log", @QUIET) != 0) { problem('A does not start a third time') }
	my ($again) = outcome("$dir/a2.log");
	problem("A is not warm after the second clean stop: $again") if $again !~ /^kept [1-9]/;
	check_sums('A at the end');
	check_indexes('A at the end');
	stop_server($a, 'fast');
	check_log("$dir/a2.log", 'A later');
	return;
}

1;
