
# Copyright (c) 2026, the persistent-cache developers

# Mode always: where it cannot be, its settings, and what is seen of its sealer.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', mode => 'always');

$node->start;
is($node->safe_psql('postgres', 'SHOW persistent_cache_seal_delay'), '10ms', 'default of the delay');
is( $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'persistent cache sealer'}),
	1, 'the sealer is in pg_stat_activity');
is( $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_wait_events WHERE type = 'Activity' AND name ILIKE '%persistent%sealer%'}),
	1, 'its wait event is described');

is( $node->safe_psql('postgres', q{
SELECT backend_type, wait_event_type, wait_event, datname IS NULL, backend_xid IS NULL, backend_xmin IS NULL
FROM pg_stat_activity WHERE wait_event = 'PersistentCacheSealerMain'}),
	'persistent cache sealer|Activity|PersistentCacheSealerMain|t|t|t',
	'it waits for that, without database, transaction and snapshot');

# Terminated, it comes back and goes on sealing; nobody else is disturbed.
my $sealer = sealer_pid();
my $session = $node->background_psql('postgres');
my $offset = log_offset($node);
is($node->safe_psql('postgres', "SELECT pg_terminate_backend($sealer, 10000)"), 't', 'pg_terminate_backend ends it');
ok( $node->poll_query_until('postgres', qq{
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'persistent cache sealer' AND pid <> $sealer}, '1'),
	'it comes back');
is($session->query_safe('SELECT 1'), 1, 'other sessions go on');
$session->quit;
unlike(slurp_file($node->logfile, $offset), qr/terminating any other active server processes/, 'it was no crash');

# Only by a superuser.
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN; GRANT pg_signal_backend TO nobody');
my (undef, undef, $refused) = $node->psql('postgres', 'SELECT pg_terminate_backend(' . sealer_pid() . ')',
	extra_params => [ '-U', 'nobody' ]);
like($refused, qr/permission denied to terminate process/, 'a role with pg_signal_backend cannot end it');

# It holds back neither vacuum nor what waits for other sessions.
$node->safe_psql('postgres', 'CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 1000)');
$node->safe_psql('postgres', 'DELETE FROM t');
$node->safe_psql('postgres', 'VACUUM t');
is($node->safe_psql('postgres', q{SELECT pg_relation_size('t')}), 0, 'VACUUM removes what was just deleted');
$node->safe_psql('postgres', 'CREATE INDEX CONCURRENTLY ON t (id)');
$node->safe_psql('postgres', 'CREATE DATABASE db');
$node->safe_psql('postgres', 'CREATE DATABASE db2 TEMPLATE db STRATEGY file_copy; DROP DATABASE db');
is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE datname LIKE 'db%'}), 'db2',
	'CREATE DATABASE and DROP DATABASE do not wait for it');
is($node->safe_psql('postgres', q{SELECT indisvalid FROM pg_index WHERE indrelid = 't'::regclass}), 't', 'nor does CREATE INDEX CONCURRENTLY');

# The delay.
for my $good (qw(1 10 500ms))
{
	is(($node->psql('postgres', "ALTER SYSTEM SET persistent_cache_seal_delay = '$good'"))[0], 0, "persistent_cache_seal_delay = $good");
}
for my $bad (qw(-1 1d x))
{
	my ($rc, $out, $err) = $node->psql('postgres', "ALTER SYSTEM SET persistent_cache_seal_delay = '$bad'");
	isnt($rc, 0, "persistent_cache_seal_delay = $bad is refused");
	like($err, qr/outside the valid range|invalid value for parameter "persistent_cache_seal_delay"/, 'with the reason');
}
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
$node->stop;
$node->append_conf('postgresql.conf', 'persistent_cache_seal_delay = -5');
start_fails($node, qr/FATAL:.*-5 ms is outside the valid range for parameter "persistent_cache_seal_delay"|-5.*persistent_cache_seal_delay/s,
	'delay out of range');
$node->adjust_conf('postgresql.conf', 'persistent_cache_seal_delay', undef);
$node->start;
$node->stop;

# Not changed but at a start.
$node->start;
my ($rc, undef, $err) = $node->psql('postgres', 'SET persistent_cache_mode = off');
isnt($rc, 0, 'the mode cannot be set in a session');
set_mode($node, 'off');
$node->reload;
is($node->safe_psql('postgres', 'SHOW persistent_cache_mode'), 'always', 'nor by a reload');
$node->stop;

# An ordinary file cannot keep what always promises.
my $disk = PostgreSQL::Test::Utils::tempdir();
SKIP:
{
	skip 'the temporary directory is on tmpfs', 3 if `stat -f -c %T $disk` =~ /tmpfs/;
	my $plain = new_node('plain', mode => 'planned_restart', directory => "$disk/pool");

	$plain->start;
	$plain->stop;
	set_mode($plain, 'always');
	start_fails($plain,
		qr/FATAL:  "persistent_cache_mode" cannot be "always" with pool ".*": the pool is an ordinary file, [^\n]*\n.*HINT:  Put the pool on persistent memory \(fsdax\), tmpfs or hugetlbfs, or use "planned_restart"\./,
		'pool on disk');
	set_mode($plain, 'planned_restart');
	$plain->start;
	is($plain->safe_psql('postgres', 'SELECT 1'), 1, 'planned_restart still works there');
	$plain->stop;
}
done_testing();

sub sealer_pid
{
	return $node->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'persistent cache sealer'});
}
