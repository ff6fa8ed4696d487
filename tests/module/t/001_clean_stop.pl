
# Copyright (c) 2026, the persistent-cache developers

# After a clean stop all pages stay, also with more or fewer shared buffers.  A start
# without the library makes the next one cold.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my ($offset, $outcome, $right, $saved, $valid);

$node->start;
like(slurp_file($node->logfile), qr/created persistent cache pool "[^"]*\/main\/pool"/, 'the first start creates the pool');
load_tables($node);
warm_restart($node, 'first restart');
change_tables($node);
warm_restart($node, 'second restart, after changes');

# each page keeps its buffer and its usage count
$node->safe_psql('postgres', q{SELECT pg_prewarm('t_heap_grp')}) for 1 .. 3;
warm_pages($node);
my $usage = usage_counts($node);
my %seen = map { $_ => 1 } values %$usage;
cmp_ok(scalar keys %seen, '>', 1, 'usage counts differ');
$node->restart;
my $usage_now = usage_counts($node);
is(scalar(grep { ($usage_now->{$_} // -1) < $usage->{$_} } keys %$usage), 0, 'each page keeps its buffer and its usage count');

# more buffers: all stay, in a larger pool
$valid = warm_pages($node);
$saved = stop_and_save($node, $valid, 'more buffers');
$node->append_conf('postgresql.conf', 'shared_buffers = 40MB');
$offset = log_offset($node);
$outcome = start_and_compare($node, 'more buffers');
is($outcome->{kept}, $saved, 'more buffers: all pages stay');
like($outcome->{log}, qr/made persistent cache pool "[^"]*" larger, from 3072 to 5120 blocks/, '... in a larger pool');
$node->wait_for_log(qr/persistent cache: allocated pool/, $offset);
change_tables($node);
warm_restart($node, 'another restart with more buffers');

# fewer buffers: what is in those that remain stays.  The pool is deleted first, and made
# anew, and then more pages are read than there will be buffers.
$node->stop;
unlink pool_file($node) or die;
$outcome = cold_start($node, qr/^the pool was created by this start$/, 'the pool was deleted');
$node->stop;
unlink pool_file($node) or die;
$node->start;
$node->safe_psql('postgres', q{SELECT count(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i', 't')});
my $remaining = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NOT NULL AND bufferid <= 1024});
$saved = stop_and_save($node, valid_buffers($node), 'fewer buffers');
$node->append_conf('postgresql.conf', 'shared_buffers = 8MB');
$right = oracle($node);
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'fewer buffers: warm');
cmp_ok($outcome->{kept}, '<=', $remaining, 'fewer buffers: no more than were in those that remain');
cmp_ok($outcome->{kept}, '>=', 900, 'fewer buffers: about as many as there are');
is($outcome->{kept} + ($outcome->{dropped}{'not fitting'} // 0), $saved, 'fewer buffers: the others do not fit');
is(contents($node), $right, 'fewer buffers: contents are right');

# and more again: what is in the other slots is not believed
change_tables($node);
$node->stop;
pool_equals_files($node, 'more buffers again');
$node->append_conf('postgresql.conf', 'shared_buffers = 24MB');
$outcome = start_and_compare($node, 'more buffers again');
is($outcome->{start}, 'warm', 'more buffers again: warm');
cmp_ok($outcome->{kept}, '<=', 1024, 'more buffers again: no more than were saved');
warm_restart($node, 'restart after that');

# a page that becomes dirty after the shutdown checkpoint: its file is not what it was
$node->safe_psql('postgres', 'CREATE TABLE t_late AS SELECT 1 AS i');
my $file = $node->safe_psql('postgres', q{SELECT concat_ws('/', 1663, oid, pg_relation_filenode('t_late')) FROM pg_database WHERE datname = current_database()});
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache, $ENV{PCACHE_LATE_HINT}'\nlate_hint.table = '$file'");
$node->restart;
$node->safe_psql('postgres', q{SELECT pg_prewarm('t_late')});
$offset = log_offset($node);
stop_and_save($node, valid_buffers($node), 'a hint bit at the end');
like(slurp_file($node->logfile, $offset), qr/shutting down.*late_hint: set a hint bit.*persistent cache: saved/s, 'a hint bit at the end: is set');
pool_equals_files($node, 'a hint bit at the end');
is(scalar(grep { join('/', @$_{qw(spc_oid db_oid rel_number)}) eq $file } pool_entries(pool_file($node))), 0, 'a hint bit at the end: the page is not saved');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'");
is(start_and_compare($node, 'a hint bit at the end')->{start}, 'warm', 'a hint bit at the end: warm');

# a server without the library has changed the files since
if (!is_patched())
{
	warm_pages($node);
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->start;
	change_tables($node);
	$node->restart;
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pg_pcache'");
	cold_start($node, qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at /, 'after a run without the library');
	warm_restart($node, 'the restart after that');
}

# the setting alone does so as well
$node->append_conf('postgresql.conf', 'pcache.mode = off');
$node->restart;
change_tables($node);
$node->stop;
$node->append_conf('postgresql.conf', 'pcache.mode = planned_restart');
cold_start($node, qr/^the pool was saved at checkpoint /, 'after a run with mode off');

# mode always takes up what planned_restart has left, and the other way round
$node->append_conf('postgresql.conf', 'pcache.mode = always');
warm_restart($node, 'mode always');
$node->append_conf('postgresql.conf', 'pcache.mode = planned_restart');
warm_restart($node, 'mode planned_restart again');

$node->stop;
done_testing();
