
# Copyright (c) 2026, the persistent-cache developers

# A clean stop with helpers, on persistent memory.  Whatever becomes of them, what the start after a power cut keeps is right, and is all that was saved.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

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
		is(() = $log =~ /a process that helps to save has failed, so the save begins anew without helpers/g,
			$fault ? HELPERS : 0, "$name: it begins anew only if they fail");
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

	# There are as many as the setting says, on tmpfs, too.
	for my $case ([ 0, 1, 0 ], [ 1, 1, 1 ], [ 3, 1, 3 ], [ 3, 0, 3 ])
	{
		my ($workers, $forced, $helpers) = @$case;
		my $offset;

		$node->append_conf('postgresql.conf', qq{
pcache_inject.save_after = 0
pcache_inject.save = ''
persistent_cache_rebuild_workers = $workers});
		$node->stop;
		local $ENV{PMEM_IS_PMEM_FORCE} = 1;
		delete local @ENV{qw(LD_PRELOAD PMEM_IS_PMEM_FORCE)} if !$forced;
		$node->start;
		$offset = log_offset($node);
		$node->stop;
		like(slurp_file($node->logfile, $offset), qr/ ms, helpers: $helpers$/m,
			"$mode, $workers helpers, " . ($forced ? 'persistent memory' : 'tmpfs') . ": $helpers");
		$node->start;
		is(contents($node), $expected, "$mode, $workers helpers: contents are right");
	}
	$node->stop;
}

done_testing();

# As the buffers have it.
sub contents
{
	my ($node) = @_;

	return checksums($node) . $node->safe_psql('postgres', q{
SELECT count(*), sum(i), sum(hashtext(filler)) FROM more});
}
