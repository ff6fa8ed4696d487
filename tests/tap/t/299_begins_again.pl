
# Copyright (c) 2026, the persistent-cache developers

# A start that finds in the startup process that it has to do without the pool
# begins again.  That is a start, and no crash: statistics and unlogged tables are
# kept, a stop meanwhile is a stop, a failure ends the server, and background
# workers run.  The reason here is that PGDATA's record of the pool cannot be written.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

my $again = qr/begins to start again, without the persistent cache/;
my $node = new_node('main', mode => 'always', init => { allows_streaming => 1 },
	conf => "shared_preload_libraries = 'pcache_inject'\npersistent_cache_directory = '" . pool_root() . "/main'");
my $pool = pool_file($node);
my $data = $node->data_dir;
my ($expected, $offset, $log);

$node->adjust_conf('postgresql.conf', 'persistent_cache_required', undef);
$node->start;
load_data($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$expected = checksums($node);

# What a clean stop and a start keep, whatever the start was like.
sub kept
{
	my ($name) = @_;

	is(checksums($node), $expected, "$name: contents are right, also of the unlogged table");
	return;
}

sub statistics
{
	return $node->safe_psql('postgres', q{SELECT sum(n_tup_ins) FROM pg_stat_user_tables});
}

my $in_the_way = state_file($node) . '.tmp';

sub break_record
{
	mkdir $in_the_way or die $!;
	return;
}

sub mend_record
{
	rmdir $in_the_way or die $!;
	return;
}

sub log_since { return slurp_file($node->logfile, $offset) }

# Statistics, workers, and the memory of the pool.
warm_up($node);
my $inserted = statistics();
cmp_ok($inserted, '>', 0, 'there are statistics');
$node->append_conf('postgresql.conf', 'pcache_inject.worker = on');
$node->stop;
break_record();
cmp_ok((stat $pool)[12] * 512, '>', 32 * 1024 * 1024, 'the pool has its memory');
$offset = log_offset($node);
$node->start;
$node->wait_for_log(qr/pcache_inject: a worker that is never restarted runs/, $offset);
$log = log_since();
like($log, $again, 'the server begins again');
unlike($log, qr/automatic recovery/, 'without a recovery');
kept('begun again');
is(statistics(), $inserted, 'begun again: statistics are kept');
cmp_ok((stat $pool)[12] * 512, '<=', 2 * 1024 * 1024 + 65536, 'begun again: the pool has given its memory back');
$node->stop;

# A stop comes while the first start is about to give up, or while the second one
# is under way.
for my $case ([ 'the first', 'persistent-cache-adopting' ], [ 'the second', 'persistent-cache-run-without' ])
{
	my ($which, $point) = @$case;
	my $name = "stopped in $which start";

	mend_record() if -d $in_the_way;
	$node->start;
	warm_up($node);
	$node->stop;
	break_record();
	$node->append_conf('postgresql.conf', "pcache_inject.hold_at = '$point'");
	$offset = log_offset($node);
	start_nowait($node);
	$node->wait_for_log(qr/waits at injection point "$point"/, $offset);
	$node->stop('fast');
	$log = log_since();
	like($log, qr/database system is shut down/, "$name: it stops");
	unlike($log, qr/abnormal/, "$name: cleanly");
	$node->adjust_conf('postgresql.conf', 'pcache_inject.hold_at', undef);
	mend_record();
	$offset = log_offset($node);
	$node->start;
	unlike(log_since(), qr/automatic recovery/, "$name: the next start needs no recovery");
	kept($name);
	is(statistics(), $inserted, "$name: statistics are kept");
	restart_warm($node, $name);
	$node->stop;
}
# The second start fails: the server ends.
break_record();
rename "$data/pg_xact/0000", "$data/0000" or die $!;
$log = start_and_fail($node, 'a failure after it has begun again');
like($log, $again, 'a failure after it has begun again: it had');
like($log, qr/shutting down due to startup process failure/, 'a failure after it has begun again: it ends as a stock server does');
rename "$data/0000", "$data/pg_xact/0000" or die $!;
done_testing();
