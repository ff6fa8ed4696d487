
# Copyright (c) 2026, the persistent-cache developers

# A clean stop with helpers, on persistent memory.  Whatever becomes of them, what the start after a power cut keeps is right, and is all that was saved.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $shim = $ENV{PCACHE_POWERCUT} // '';
plan skip_all => 'no power cut shim' if !-e "$shim/libpowercut.so";
need_inject_module();

my $seed = $ENV{PCACHE_SEED} // int(rand(2**31));
note("seed: $seed (set PCACHE_SEED to repeat)");

use constant {
	HELPERS => 2,
	SLOTS => 8192,
	SLOTS_PER_CLAIM => 1024,
};

for my $mode (qw(planned_restart always))
{
	my $dir = pool_root() . "/$mode";
	my ($node, $expected);

	mkdir $dir, 0700;
	@ENV{qw(LD_PRELOAD PMEM_IS_PMEM_FORCE POWERCUT_DIR POWERCUT_IMAGE POWERCUT_SEED)} =
	  ("$shim/libpowercut.so", 1, $dir, "$dir.image", $seed);

	# nothing is sealed while the server runs, so that all is left to the save
	$node = new_node($mode, mode => $mode, shared_buffers => SLOTS * 8 / 1024 . 'MB', conf => qq{
shared_preload_libraries = 'pcache_inject'
pcache_inject.media = 'clean'
pcache_inject.dimms = 'dimm-a:7'
persistent_cache_seal_delay = 10s
persistent_cache_rebuild_workers = ${\ HELPERS}
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

		system_or_bail("$shim/powercut", "$dir/pool", "$dir.image", $seed++);
		$offset = log_offset($node);
		$node->start;
		$outcome = start_outcome($node, $offset);
		is($outcome->{start}, 'warm', "$name: warm after a power cut") or diag($outcome->{reason});
		is($outcome->{kept}, $saved, "$name: all saved pages are kept");
		next if is(eval { contents($node) } // "error: $@", $expected, "$name: contents are right");

		# with catalogs that are wrong, nothing else can be tested
		done_testing();
		exit 1;
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

	# A helper does not outlive the checkpointer, whose pool it has locked.
	for my $how ('kill -9', 'immediate')
	{
		my @pids;

		run_with_fault($node, 'hold');
		$offset = log_offset($node);
		system_or_bail('pg_ctl', '--pgdata' => $node->data_dir, '--mode' => 'fast', '--no-wait', 'stop');
		$node->wait_for_log(qr/(pcache_inject: PID \d+ waits.*){${\ HELPERS}}/s, $offset);
		@pids = slurp_file($node->logfile, $offset) =~ /pcache_inject: PID (\d+) waits/g;
		$how eq 'immediate' ? $node->stop('immediate') : kill_all($node);
		for (1 .. 600)
		{
			last if !grep { kill 0, $_ } @pids;
			usleep(100_000);
		}
		is(scalar(grep { kill 0, $_ } @pids), 0, "$mode, $how: helpers that wait have ended")
		  or kill 'KILL', @pids;
		$node->append_conf('postgresql.conf', "pcache_inject.save = ''");
		$node->start;
		is(contents($node), $expected, "$mode, $how: contents are right");
	}

	# There are as many as the setting says, on tmpfs, too.
	for my $case ([ 0, 1 ], [ 1, 1 ], [ 3, 1 ], [ 3, 0 ])
	{
		my ($workers, $forced) = @$case;

		$node->append_conf('postgresql.conf', qq{
pcache_inject.save_after = 0
pcache_inject.save = ''
persistent_cache_rebuild_workers = $workers});
		$node->stop;
		local $ENV{PMEM_IS_PMEM_FORCE} = $forced;
		$node->start;
		$offset = log_offset($node);
		$node->stop;
		like(slurp_file($node->logfile, $offset), qr/ ms, helpers: $workers$/m,
			"$mode, $workers helpers, " . ($forced ? 'persistent memory' : 'tmpfs') . ": the log tells");
		$node->start;
		is(contents($node), $expected, "$mode, $workers helpers: contents are right");
	}
	$node->stop;
}

done_testing();

# Restart with that in store for the helpers of the next stop.
sub run_with_fault
{
	my ($node, $fault) = @_;

	$node->append_conf('postgresql.conf', qq{
pcache_inject.save_after = ${\ (HELPERS * SLOTS_PER_CLAIM)}
pcache_inject.save = '$fault'});
	$node->restart;
	warm_up($node);
	return;
}

# As the buffers have it.
sub contents
{
	my ($node) = @_;

	return checksums($node) . $node->safe_psql('postgres', q{
SELECT count(*), sum(i), sum(hashtext(filler)) FROM more});
}
