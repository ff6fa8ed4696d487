
# Copyright (c) 2026, the persistent-cache developers

# Mode always without a worker process for the sealer: the server says at its
# start what that means.  And what pg_pcache verify counts after a crash is
# what the server counts.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $WARNING = qr/WARNING:  the persistent cache sealer cannot run, because there are too few worker processes\n[^\n]*DETAIL:  Without it a start after a crash keeps no page that was read or changed since the last start\.\n[^\n]*HINT:  Increase "max_worker_processes", or set "persistent_cache_mode" to "planned_restart"\./;

my $node = new_node('main', mode => 'always',
	conf => "max_worker_processes = 0\nmax_parallel_workers = 0\nsynchronous_commit = on");
my ($offset, $valid, $expected, $verdict, $outcome);

$node->start;
like(slurp_file($node->logfile), $WARNING, 'no worker process: there is a warning');
load_data($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$expected = checksums($node, tables => [LOGGED]);
warm_up($node);
is($node->safe_psql('postgres', 'SELECT sealer_pid IS NULL FROM pg_stat_pcache'),
	't', 'no worker process: the view shows that there is no sealer');
is($node->safe_psql('postgres', q{SELECT warm, reason FROM pg_pcache_next_start($$crash$$)}),
	'f|no pages', 'no worker process: so the next start will be cold after a crash');
kill_all($node);
my ($rc, $rebuilt) = pcache($node, 'rebuild');
is($rc, 2, 'no worker process, a crash: pg_pcache rebuild says that the next start is cold');
like($rebuilt, qr/^next start: COLD: the last server had not sealed any page$/m,
	'no worker process, a crash: and why');
$offset = log_offset($node);
cold_after_crash($node, 'no_pages', qr/^the last server had not sealed any page$/,
	'no worker process, a crash');
is($node->safe_psql('postgres', 'SELECT last_start, last_start_reason FROM pg_pcache_pool'),
	'cold|no pages', 'no worker process, a crash: the view says so as well');
like(slurp_file($node->logfile, $offset), $WARNING, 'no worker process, a crash: and there is a warning');
contents_right($node, $expected, 'no worker process, a crash');
restart_warm($node, 'no worker process, a clean stop');
$node->stop;

# One is enough.
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$offset = log_offset($node);
$node->start;
unlike(slurp_file($node->logfile, $offset), qr/WARNING/, 'a worker process: no warning');

# A module that takes the last one has it, as it would without the cache.
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_prewarm'");
$offset = log_offset($node);
$node->start;
like(slurp_file($node->logfile, $offset), $WARNING, 'a module with a worker process: there is a warning');
$node->stop;
ok(-f $node->data_dir . '/autoprewarm.blocks', 'a module with a worker process: it does its work');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;

# A clean stop saves more pages than are sealed when the server crashes.
$valid = warm_up($node);
$node->stop;
my $saved = read_superblock(pool_file($node))->{saved_pages};
$node->append_conf('postgresql.conf', "persistent_cache_seal_delay = 10s");
$node->start;
$node->safe_psql('postgres', q{
UPDATE t_heap SET grp = grp + 1;
VACUUM t_heap});
$expected = checksums($node, tables => [LOGGED]);
kill_all($node);

my $sealed = sealed_slots(pool_file($node));
cmp_ok($sealed, '<', $saved, 'crash: fewer pages are sealed than were saved');
$verdict = verify_json($node);
is($verdict->{rc}, 0, 'crash: pg_pcache verify says warm');
is($verdict->{saved_pages}, $sealed, 'crash: pg_pcache verify counts what is sealed');
like((pcache($node, 'verify'))[1], qr/^next start: WARM, \d+ of $sealed pages$/m, 'crash: in text as well');
$offset = log_offset($node);
$node->start;
$outcome = start_outcome($node, $offset);
is($outcome->{saved}, $verdict->{saved_pages}, 'crash: so does the server');
is($outcome->{kept}, $verdict->{pages}{kept}, 'crash: and both keep as many');
contents_right($node, $expected, 'crash');

# After a clean stop a descriptor that was damaged is missed.
warm_up($node);
$node->stop;
$saved = read_superblock(pool_file($node))->{saved_pages};
my ($slot) = sealed_slots(pool_file($node));
write_bytes(pool_file($node), DESCRIPTORS_OFFSET + $slot * DESCRIPTOR_SIZE, pack 'Q', 1);
$verdict = verify_json($node);
is($verdict->{saved_pages}, $saved, 'clean stop: what was saved counts');
is($verdict->{pages}{kept}, $saved - 1, 'clean stop: and one is missing');
done_testing();
