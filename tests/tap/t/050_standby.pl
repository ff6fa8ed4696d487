
# Copyright (c) 2026, the persistent-cache developers

# Standbys: restarts, promotion, and a primary that becomes one.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary',
	init => { allows_streaming => 1 },
	conf => 'wal_keep_size = 320MB');

$primary->start;
$primary->backup('b');
my $standby = new_standby('standby', $primary, 'b');
ok(!-e $standby->data_dir . '/pg_pcache', 'the pool leaves nothing but its record in the data directory');

my $offset = log_offset($standby);
$standby->start;
is(start_outcome($standby, $offset)->{reason}, 'the pool is empty',
	'the first start of the standby is cold');
load_data($primary);
$primary->wait_for_replay_catchup($standby);

my $expected = checksums($primary, tables => [LOGGED]);

# Stopped after a restartpoint, with nothing dirty.
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
standby_is_warm('nothing dirty');

# Stopped when the last checkpoint record is already the restartpoint, and
# buffers are dirty: no new restartpoint is possible.
$primary->safe_psql('postgres', q{
UPDATE t_heap SET filler = reverse(filler) WHERE id % 4 = 0;
INSERT INTO t_other SELECT i, 'x' FROM generate_series(1, 5000) i;
DELETE FROM t_kinds WHERE id % 3 = 0});
$primary->wait_for_replay_catchup($standby);
$expected = checksums($primary, tables => [LOGGED]);
cmp_ok(
	$standby->safe_psql('postgres',
		'SELECT count(*) FROM pg_buffercache WHERE isdirty'),
	'>', 100, 'no restartpoint possible: many buffers are dirty');
standby_is_warm('no restartpoint possible', qr/skipping restartpoint|restartpoint/);

# The same once more: redo starts from the same restartpoint again, and finds
# pages of the future.
standby_is_warm('no restartpoint possible, again');

# The same with a file that cannot be written.  PostgreSQL would not write it, so
# the stop must not fail; the cache is not saved then.
$primary->safe_psql('postgres', 'UPDATE t_heap SET filler = reverse(filler) WHERE id % 5 = 0');
$primary->wait_for_replay_catchup($standby);
$expected = checksums($primary, tables => [LOGGED]);
my $file = $standby->data_dir . '/' . $standby->safe_psql('postgres', q{SELECT pg_relation_filepath('t_heap')});
my $reset = 'SELECT stats_reset FROM pg_stat_bgwriter';
my $since = $standby->safe_psql('postgres', $reset);
rename $file, "$file.away" or die $!;
mkdir $file, 0700 or die $!;
$offset = log_offset($standby);
ok($standby->stop('fast', fail_ok => 1), 'a file that cannot be written: the stop succeeds');
rmdir $file or die $!;
rename "$file.away", $file or die $!;
my $log = slurp_file($standby->logfile, $offset);
like($log, qr/ERROR:  could not open file .*: Is a directory.*LOG:  persistent cache: not saved: could not write what the restartpoint had left/s,
	'a file that cannot be written: the log says what was not done');
like($log, qr/LOG:  database system is shut down/, 'a file that cannot be written: the stop is clean');
$offset = log_offset($standby);
$standby->start;
is(start_outcome($standby, $offset)->{start}, 'cold', 'a file that cannot be written: cold');
is($standby->safe_psql('postgres', $reset), $since, 'a file that cannot be written: statistics are kept');
$primary->wait_for_replay_catchup($standby);
is(checksums($standby, tables => [LOGGED]), $expected, 'a file that cannot be written: contents are right');

# Stopped when a new restartpoint is possible.
$primary->safe_psql('postgres', q{
UPDATE t_heap SET grp = grp + 1 WHERE id % 9 = 0; CHECKPOINT;
UPDATE t_heap SET grp = grp + 1 WHERE id % 11 = 0});
$primary->wait_for_replay_catchup($standby);
$expected = checksums($primary, tables => [LOGGED]);
standby_is_warm('restartpoint at the stop');

# What the primary did while the standby was down.
my $valid = warm_up($standby);
$offset = log_offset($standby);
$standby->stop;
$primary->safe_psql('postgres', q{
UPDATE t_heap SET filler = md5(filler) WHERE id % 2 = 0;
DROP TABLE t_other; CREATE TABLE t_other (id int, filler text);
VACUUM FULL t_kinds; TRUNCATE t_unlogged});
$expected = checksums($primary, tables => [LOGGED]);
$standby->start;
$primary->wait_for_replay_catchup($standby);
is(start_outcome($standby, $offset)->{start}, 'warm', 'behind: warm');
cmp_ok(start_outcome($standby, $offset)->{kept}, '>=', 0.999 * $valid,
	'behind: what was valid was kept');
is(checksums($standby, tables => [LOGGED]), $expected, 'behind: contents are right');
pages_equal_disk($standby, 'behind', hints => 1);

# Crashed: cold.
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_replay_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
$offset = log_offset($standby);
$standby->stop('immediate');
$standby->start;
is_cold($standby, $offset, qr/^the server was not shut down cleanly$/, 'standby crashed');
$primary->wait_for_replay_catchup($standby);
is(checksums($standby, tables => [LOGGED]), $expected,
	'standby crashed: contents are right');
standby_is_warm('standby crashed, then a clean stop');

# Promotion after a clean stop keeps the cache: through the promotion, and
# through a clean stop of what was promoted.
$valid = warm_up($standby);
$offset = log_offset($standby);
$standby->stop;
$primary->stop;
$standby->start;
is_warm($standby, $offset, $valid, 'promotion: the start before');
$standby->promote;
is(relation_reads($standby, 'SELECT sum(length(filler)) FROM t_heap'),
	0, 'promotion: no block is read again');
is(checksums($standby, tables => [LOGGED]), $expected, 'promotion: contents are right');
$standby->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 13 = 0');
$expected = checksums($standby, tables => [LOGGED]);
restart_warm($standby, 'promotion, then a clean stop');
is(relation_reads($standby), 0, 'promotion, then a clean stop: no block is read again');
is(checksums($standby, tables => [LOGGED]), $expected,
	'promotion, then a clean stop: contents are right');
pages_equal_disk($standby, 'promotion, then a clean stop', hints => 1);

# A primary that was stopped cleanly and comes back as a standby: warm but for
# unlogged relations, which recovery resets.
$standby->safe_psql('postgres', 'INSERT INTO t_unlogged SELECT i, i FROM generate_series(1, 5000) i');
$valid = warm_up($standby);
my $unlogged = $standby->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache b JOIN pg_class c ON b.relfilenode = pg_relation_filenode(c.oid)
WHERE c.relpersistence = 'u' AND b.relforknumber <> 3
AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())});
cmp_ok($unlogged, '>', 10, 'primary to standby: unlogged pages are cached');
$offset = log_offset($standby);
$standby->stop;
$standby->set_standby_mode;
my $verdict = verify_json($standby);
is($verdict->{pages}{unlogged}, $unlogged,
	'primary to standby: pg_pcache verify counts the unlogged pages');
$standby->start;
my $outcome = is_warm($standby, $offset, $valid - $unlogged, 'primary to standby');
is($outcome->{dropped}{unlogged}, $unlogged,
	'primary to standby: exactly the unlogged pages were dropped');
is($outcome->{kept}, $verdict->{pages}{kept},
	'primary to standby: pg_pcache verify and the server agree');
is(checksums($standby, tables => [LOGGED]), $expected,
	'primary to standby: contents are right');
$standby->promote;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'),
	0, 'primary to standby: the unlogged table was reset');
restart_warm($standby, 'primary to standby to primary');

# A standby that has a recovery target is not a standby.
$standby->stop;
$standby->set_standby_mode;
$standby->append_conf('postgresql.conf', "recovery_target_lsn = '7F/0'");
is(verify_json($standby)->{reason}, 'recovery_target',
	'standby with a recovery target: pg_pcache verify says cold');
$offset = log_offset($standby);
$standby->start;
is_cold($standby, $offset, qr/^point-in-time recovery was requested$/,
	'standby with a recovery target');
is(checksums($standby, tables => [LOGGED]), $expected,
	'standby with a recovery target: contents are right');
$standby->stop;

done_testing();

# Restart the standby, which follows the primary.
sub standby_is_warm
{
	my ($name) = @_;
	my $valid = warm_up($standby);
	my $offset = log_offset($standby);

	$standby->stop;
	is(verify_json($standby)->{rc}, 0, "$name: pg_pcache verify says warm");
	$standby->start;
	is_warm($standby, $offset, $valid, $name);
	is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'),
		't', "$name: it is a standby");
	is(relation_reads($standby), 0, "$name: no block is read again");
	is(checksums($standby, tables => [LOGGED]), $expected, "$name: contents are right");
	pages_equal_disk($standby, $name, hints => 1);
	return;
}
