
# Copyright (c) 2026, the persistent-cache developers

# pg_rewind leaves pool and record alone on both sides; the target starts
# cold, the source stays warm.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $target = new_node('target', init => { allows_streaming => 1 },
	conf => "wal_keep_size = 320MB\nwal_log_hints = on");

$target->start;
$target->backup('b');
my $source = new_standby('source', $target, 'b');
$source->start;

load_data($target);
$target->wait_for_replay_catchup($source);
$source->promote;

# both go on, each its own way
$target->safe_psql('postgres',
	q{UPDATE t_heap SET filler = 'target' WHERE id % 7 = 0; INSERT INTO t_other SELECT 1, 'target'});
$source->safe_psql('postgres',
	q{UPDATE t_heap SET filler = 'source' WHERE id % 5 = 0; INSERT INTO t_other SELECT 2, 'source'});
my $expected = checksums($source, tables => [LOGGED]);

isnt(checksums($target, tables => [LOGGED]), $expected, 'the two have diverged');
restart_warm($target, 'target before');
restart_warm($source, 'source before');
$target->stop;

for my $from (qw(server directory))
{
	my $state = slurp_file(state_file($target));
	my $pool_inode = (stat pool_file($target))[1];
	my $conf = slurp_file($target->data_dir . '/postgresql.conf');
	my $source_state;
	my $valid = warm_up($source);
	my @source_option;

	is(verify_json($target)->{rc}, 0,
		"from $from: without pg_rewind the target would be warm");
	if ($from eq 'server')
	{
		@source_option = ('--source-server' => $source->connstr('postgres'));
		$source->safe_psql('postgres', 'CHECKPOINT');
	}
	else
	{
		$source->stop;
		@source_option = ('--source-pgdata' => $source->data_dir);
	}
	$source_state = slurp_file(state_file($source));
	command_ok(
		[
			'pg_rewind', '--debug', '--no-sync', @source_option,
			'--target-pgdata' => $target->data_dir
		],
		"from $from: pg_rewind");

	is(slurp_file(state_file($target)), $state,
		"from $from: the target keeps its record");
	is((stat pool_file($target))[1], $pool_inode,
		"from $from: the target keeps its pool");
	is(slurp_file(state_file($source)), $source_state,
		"from $from: the source keeps its record");

	# it copied the source's configuration
	unlink $target->data_dir . '/postgresql.conf';
	append_to_file($target->data_dir . '/postgresql.conf', $conf);
	chmod 0600, $target->data_dir . '/postgresql.conf';

	my $offset = log_offset($source);
	$source->stop if $from eq 'server';
	$source->start;
	is_warm($source, $offset, $valid, "from $from: the source");
	is(checksums($source, tables => [LOGGED]), $expected,
		"from $from: the source's contents are right");

	# the target follows the source now
	$target->enable_streaming($source) if $from eq 'server';
	$target->set_standby_mode;
	$offset = log_offset($target);
	$target->start;
	$source->wait_for_replay_catchup($target);
	is(start_outcome($target, $offset)->{start}, 'cold', "from $from: the target is cold");
	like(start_outcome($target, $offset)->{reason} // '',
		qr/timeline|checkpoint|without the pool/, "from $from: for the right reason");
	is(checksums($target, tables => [LOGGED]), $expected,
		"from $from: the target has the source's contents");
	restart_warm($target, "from $from: the target, then a clean stop");
	pages_equal_disk($target, "from $from: the target, then a clean stop", hints => 1);
	next if $from eq 'directory';

	# diverge again, for the next round
	$source->wait_for_replay_catchup($target);
	$target->promote;
	$target->safe_psql('postgres', q{INSERT INTO t_other SELECT 3, 'target'});
	$source->safe_psql('postgres', q{UPDATE t_heap SET grp = grp + 1 WHERE id % 5 = 0});
	$expected = checksums($source, tables => [LOGGED]);
	warm_up($target);
	$target->stop;
}
$target->stop;
$source->stop;

done_testing();
