
# Copyright (c) 2026, the persistent-cache developers

# A clean stop with helpers, on persistent memory.  Whatever becomes of them, what the start after a power cut keeps is right, and is all that was saved.

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

need_powercut();
need_inject_module();

my $seed = seed_random();

use constant {
	HELPERS => 2,
	SLOTS => 8192,
	SLOTS_PER_CLAIM => 1024,
};

for my $mode (qw(planned_restart always))
{
	my $dir = pool_root() . "/$mode";
	my ($node, $expected);

	%ENV = (%ENV, powercut_environment($dir, $seed));

	# nothing is sealed while the server runs, so that all is left to the save
	$node = new_node($mode, mode => $mode, shared_buffers => SLOTS * 8 / 1024 . 'MB', conf => powercut_conf() . qq{
persistent_cache_seal_delay = 10s
persistent_cache_workers = ${\ HELPERS}
autovacuum = off});
	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE TABLE more WITH (fillfactor = 10) AS
	SELECT i, repeat('x', 400) AS filler FROM generate_series(1, 5000) i});

	# They save it all; they share it with the checkpointer; each fails or is killed
	# when it has saved its first pages.
	for my $case ([ 'all', SLOTS, '' ], [ 'some', 0, '' ],
		[ 'fail', HELPERS * SLOTS_PER_CLAIM, 'fail' ], [ 'kill', HELPERS * SLOTS_PER_CLAIM, 'kill' ])
	{
		my ($what, $claimed, $fault) = @$case;
		my $name = "$mode, helpers $what";
		my ($log, $outcome, $offset);

		$node->append_conf('postgresql.conf', qq{
pcache_inject.save_after = $claimed
pcache_inject.save = '$fault'});
		$node->restart;
		warm_up($node);
		$node->safe_psql('postgres', 'UPDATE more SET i = i + 1');
		$expected = contents($node);

		$offset = log_offset($node);
		$node->stop;
		$log = slurp_file($node->logfile, $offset);
		like($log, qr/LOG:  persistent cache: saved \d+ pages in ${\ SLOTS} slots, [\d.]+ ms, helpers: ${\ ($fault ? 0 : HELPERS)}$/m,
			"$name: the log tells how many have helped");
		is(() = $log =~ /LOG:  persistent cache: a process that helps to save has failed$/mg,
			$fault ? HELPERS : 0, "$name: so many have failed");
		is(() = $log =~ /LOG:  persistent cache: the save begins anew without helpers$/mg,
			$fault ? 1 : 0, "$name: it begins anew only if they fail");
		is(() = $log =~ /DETAIL:  child process exited with exit code 1$/mg, $fault eq 'fail' ? HELPERS : 0,
			"$name: those that failed");
		is(() = $log =~ /DETAIL:  child process was terminated by signal 9/g, $fault eq 'kill' ? HELPERS : 0,
			"$name: those that were killed");
		my ($saved) = $log =~ /saved (\d+) pages/;
		cmp_ok($saved // 0, '>', HELPERS * SLOTS_PER_CLAIM, "$name: more pages than the first claims");

		cut_power($dir, $seed++);
		$offset = log_offset($node);
		$node->start;
		$outcome = start_outcome($node, $offset);
		is($outcome->{start}, 'warm', "$name: warm after a power cut") or diag($outcome->{reason});
		is($outcome->{kept}, $saved, "$name: all saved pages are kept");
		# with catalogs that are wrong, nothing else can be tested
		is(eval { contents($node) } // "error: $@", $expected, "$name: contents are right")
		  or die 'the cluster is damaged';
	}

	# A fault makes memory suspect, as it does in any process.
	delete local @ENV{qw(LD_PRELOAD PMEM_IS_PMEM_FORCE)};
	unlink "$dir.image", "$dir.image.ctl";
	$node->append_conf('postgresql.conf', "pcache_inject.save = ''");
	$node->restart;
	run_with_fault($node, 'fault');
	$node->stop;
	$node->append_conf('postgresql.conf', "pcache_inject.save = ''");
	my $offset = log_offset($node);
	$node->start;
	my $outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', "$mode, a helper dies of a fault: cold");
	like($outcome->{reason}, qr/may have overwritten|suspect/, "$mode, a helper dies of a fault: the reason");
	is(contents($node), $expected, "$mode, a helper dies of a fault: contents are right");

	# A memory error that nobody has met before the save does not make a crash of
	# a clean stop.  It costs no more than the pages that it hits.
	# If it could not be recorded, nothing is kept.
	for my $case ([ 'a helper', 'break', 0 ], [ 'a helper', 'unrecorded', 0 ], [ 'the checkpointer', '', 3 ], [ 'the checkpointer', '', 100 ])
	{
		my ($who, $fault, $passes) = @$case;
		my $name = "$mode, $who meets memory errors" . ($passes ? ", $passes passes" : ", $fault");
		my $gives_up = $passes == 100;
		my ($log, $saved, $reported, $foretold);
		# a save in memory reads next to no page
		local $ENV{PMEM_IS_PMEM_FORCE} = 1;

		run_with_fault($node, $fault, $passes);
		$offset = log_offset($node);
		ok($node->stop(undef, fail_ok => 1), "$name: the stop succeeds");
		$log = slurp_file($node->logfile, $offset);
		unlike($log, qr/abnormal database system shutdown/, "$name: and is clean");
		($saved) = $log =~ /persistent cache: saved (\d+) pages/;
		$reported = () = $log =~ /^LOG:  memory error in persistent cache pool, process \d+: /mg;
		if ($fault)
		{
			# one that comes late may find nothing left to claim
			like($log, qr/^PANIC:  memory error in persistent cache pool/m, "$name: the log names a page");
		}
		else
		{
			# those of the buffers, and in the first pass in a page of descriptors
			is($reported, $passes == 3 ? 4 : 16, "$name: the log names what is lost");
		}
		if ($gives_up)
		{
			like($log, qr/LOG:  persistent cache: not saved: there are too many memory errors in pool/,
				"$name: it gives up");
		}
		else
		{
			cmp_ok($saved // 0, '>', HELPERS * SLOTS_PER_CLAIM, "$name: other pages are saved");
		}
		$node->append_conf('postgresql.conf', q{
pcache_inject.save = ''
pcache_inject.break_in_save = 0});
		$foretold = verify_json($node)->{next_start};
		$offset = log_offset($node);
		$node->start;
		$outcome = start_outcome($node, $offset);
		if ($fault eq 'unrecorded')
		{
			is($outcome->{start}, 'cold', "$name: cold");
			like($outcome->{reason}, qr/may have overwritten|suspect/, "$name: the reason");
		}
		elsif ($gives_up)
		{
			# in mode always, what the sealer has sealed by then is kept
			is($outcome->{start}, $mode eq 'always' ? $foretold : 'cold', "$name: as after a crash");
		}
		else
		{
			is($outcome->{kept}, $saved, "$name: and kept");
		}
		is(contents($node), $expected, "$name: contents are right");
		$node->stop;
		is((pcache($node, 'init', '--force', '--directory' => pool_dir($node)))[0], 0, "$name: a new pool");
		$node->start;
	}

	# A helper outlives neither the checkpointer, whose pool it has locked, nor the
	# postmaster.  Statistics are not lost if the server is killed while it saves.
	my $counted = inserted($node);
	for my $how ('kill -9', 'immediate', 'kill -9 postmaster')
	{
		my @pids;

		run_with_fault($node, 'hold');
		$offset = log_offset($node);
		system_or_bail('pg_ctl', '--pgdata' => $node->data_dir, '--mode' => 'fast', '--no-wait', 'stop');
		$node->wait_for_log(qr/(pcache_inject: PID \d+ waits.*){${\ HELPERS}}/s, $offset);
		@pids = slurp_file($node->logfile, $offset) =~ /pcache_inject: PID (\d+) waits/g;
		$how eq 'immediate' ? $node->stop('immediate') :
		  $how eq 'kill -9' ? kill_all($node) : $node->kill9;
		for (1 .. 600)
		{
			last if !grep { kill 0, $_ } @pids;
			usleep(100_000);
		}
		is(scalar(grep { kill 0, $_ } @pids), 0, "$mode, $how: helpers that wait have ended")
		  or kill 'KILL', @pids;
		$node->append_conf('postgresql.conf', "pcache_inject.save = ''");
		$node->start;
		is(inserted($node), $counted, "$mode, $how: statistics are kept");
		is(contents($node), $expected, "$mode, $how: contents are right");
	}

	# There are as many as the setting says, on tmpfs, too.
	for my $case ([ 0, 1 ], [ 1, 1 ], [ 3, 1 ], [ 3, 0 ])
	{
		my ($workers, $forced) = @$case;
		my $log;

		# In memory no page is read but the first of a file, for a primary.
		$node->append_conf('postgresql.conf', qq{
pcache_inject.save_after = 0
pcache_inject.save = ''
pcache_inject.break_in_save = ${\ ($forced ? 0 : -1)}
persistent_cache_workers = $workers});
		$node->stop;
		local $ENV{PMEM_IS_PMEM_FORCE} = $forced;
		$node->start;
		$offset = log_offset($node);
		$node->stop;
		$log = slurp_file($node->logfile, $offset);
		like($log, qr/ ms, helpers: $workers$/m,
			"$mode, $workers helpers, " . ($forced ? 'persistent memory' : 'tmpfs') . ": the log tells");
		unlike($log, qr/memory error/, "$mode, $workers helpers: no page was broken that is read");
		$node->start;
		is(contents($node), $expected, "$mode, $workers helpers: contents are right");
	}
	$node->stop;
}

done_testing();

# Restart with that in store for the helpers of the next stop.
sub run_with_fault
{
	my ($node, $fault, $passes) = @_;

	$node->append_conf('postgresql.conf', qq{
persistent_cache_workers = ${\ ($passes ? 0 : HELPERS)}
pcache_inject.save_after = ${\ ($passes ? 0 : HELPERS * SLOTS_PER_CLAIM)}
pcache_inject.save = '$fault'
pcache_inject.break_in_save = ${\ ($passes // 0)}});
	$node->restart;
	warm_up($node);
	return;
}

# What is counted of rows that were inserted once.
sub inserted
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SELECT n_tup_ins > 0, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'more'});
}

# As the buffers have it.
sub contents
{
	my ($node) = @_;

	return checksums($node) . $node->safe_psql('postgres', q{
SELECT count(*), sum(i), sum(hashtext(filler)) FROM more});
}
