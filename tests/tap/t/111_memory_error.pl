
# Copyright (c) 2026, the persistent-cache developers

# A memory error in the pool: the process that meets it names the page and
# dies, the server restarts, and only that page is lost; the memory is not used
# again.  The error is made by mapping an empty file over the pool in one
# process, and by the kernel (MADV_HWPOISON) where it can and may:
#   setpriv --reuid=pcache --regid=pcache --init-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin tests/run-tap ...

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

my $MEMORY_ERROR = qr/PANIC:  memory error in persistent cache pool, process \d+: (.*)/;

# A node in some mode, with data, running.
sub start_node
{
	my ($name, $mode) = @_;
	my $node = new_node($name, mode => $mode,
		conf => "restart_after_crash = on\nsynchronous_commit = on\nwal_level = replica");

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', q{
CREATE EXTENSION pg_pcache;
CREATE FUNCTION break(int) RETURNS void AS 'pcache_inject', 'pcache_inject_break' LANGUAGE C;
CREATE FUNCTION break_descriptor(int) RETURNS void AS 'pcache_inject', 'pcache_inject_break_descriptor' LANGUAGE C;
CREATE FUNCTION poison(int) RETURNS text AS 'pcache_inject', 'pcache_inject_poison' LANGUAGE C});
	return $node;
}

# A buffer with a page of t_heap, and what it is called.
sub pick_buffer
{
	my ($node) = @_;
	my ($buffer, $block, $name) = split /\|/, $node->safe_psql('postgres', q{
SELECT bufferid, relblocknumber,
  format('buffer %s, relation %s/%s/%s, fork main, block %s', bufferid,
         reltablespace, reldatabase, relfilenode, relblocknumber)
FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('t_heap') AND relblocknumber > 10
ORDER BY relblocknumber LIMIT 1});
	return ($buffer, $block, $name);
}

# How many pages of our tables are cached.  Catalogs and the like may be in
# change at any moment.
sub cached_pages
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache WHERE relfilenode IN (
SELECT pg_relation_filenode(c.oid) FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE coalesce(i.indrelid, c.oid) IN ('t_heap'::regclass, 't_toast'::regclass, 't_kinds'::regclass))});
}

# Run SQL that meets the error; the server must come back by itself, after one
# crash.  Returns the outcome of that start.
sub meet_error
{
	my ($node, $sql, $named, $name) = @_;
	my $offset = log_offset($node);
	my $postmaster = slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr;
	my ($rc, $outcome, $log);

	$rc = $node->psql('postgres', $sql, stdout => \my $out, stderr => \my $err);
	isnt($rc, 0, "$name: the session breaks");
	$node->wait_for_log(qr/was terminated by signal 7: Bus error/, $offset);
	$node->wait_for_log(qr/persistent cache: (?:kept|starting cold)/, $offset);
	wait_until_back($node);
	is(slurp_file($node->data_dir . '/postmaster.pid') =~ s/\n.*//sr,
		$postmaster, "$name: the server comes back by itself");
	$outcome = start_outcome($node, $offset);
	$log = slurp_file($node->logfile, $offset);
	is(join("\n", $log =~ /$MEMORY_ERROR/g), $named, "$name: the log names what is lost");
	is(scalar(() = $log =~ /all server processes terminated; reinitializing/g),
		1, "$name: there was one crash");
	return $outcome;
}

sub is_retired
{
	my ($node, $buffers, $name) = @_;

	is( $node->safe_psql('postgres', 'SELECT retired, media, bad_bytes FROM pg_pcache_pool'),
		"$buffers->{retired}|bad|$buffers->{bytes}", "$name: it is not used any more");
	$node->safe_psql('postgres', q{
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 25000) i;
SELECT count(*) FROM scratch;
DROP TABLE scratch;
CHECKPOINT});
	return;
}

# ---------------------------------------------------------------------------
# Mode always: one page.
# ---------------------------------------------------------------------------
my $node = start_node('always', 'always');
my $expected = checksums($node, tables => [LOGGED]);
my $lost = 0;
my ($outcome, $valid, $buffer, $block, $page, $offset);

for my $dirty (0, 1)
{
	my $name = $dirty ? 'always, dirty page' : 'always';

	# before the page is touched for the last time, WAL has all of it
	$node->safe_psql('postgres', 'CHECKPOINT');
	warm_up($node);
	($buffer, $block, $page) = pick_buffer($node);
	if ($dirty)
	{
		$node->safe_psql('postgres',
			"UPDATE t_heap SET filler = upper(filler) WHERE ctid IN ('($block,1)', '($block,2)')");
		$expected = checksums($node, tables => [LOGGED]);
		is( $node->safe_psql('postgres', "SELECT isdirty FROM pg_buffercache WHERE bufferid = $buffer"),
			't', "$name: it is dirty");
	}
	$valid = cached_pages($node);
	is($node->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, "$name: all is sealed");
	$outcome = meet_error($node, "SELECT break($buffer); SELECT * FROM t_heap WHERE ctid = '($block,1)'",
		$page, $name);
	$lost++;
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason} // 'no word of it');
	is($outcome->{dropped}{'bad block'}, 1, "$name: one page was dropped for it");
	# redo reads a page again that was changed since the last checkpoint
	is(cached_pages($node), $dirty ? $valid : $valid - 1, "$name: all others were kept");
	is_retired($node, { retired => $lost, bytes => $lost * BLCKSZ }, $name);
	is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right");
}

# The memory stays out of use over clean stops and crashes, until there is a
# new pool.
$valid = warm_up($node);
$offset = log_offset($node);
$node->restart;
is_warm($node, $offset, $valid, 'always, a clean stop');
is_retired($node, { retired => $lost, bytes => $lost * BLCKSZ }, 'always, a clean stop');
warm_up($node);
$valid = permanent_buffers($node);
$node->safe_psql('postgres', 'SELECT pg_pcache_seal()');
kill_all($node);
# but for a catalog page that the last session had in change
warm_after_crash($node, $valid, 'always, kill -9', ratio => 0.99);
is_retired($node, { retired => $lost, bytes => $lost * BLCKSZ }, 'always, kill -9');
is(checksums($node, tables => [LOGGED]), $expected, 'always, kill -9: contents are right');

# ---------------------------------------------------------------------------
# Mode always: descriptors.  Those of 64 slots lie in a page.
# ---------------------------------------------------------------------------
warm_up($node);
($buffer, $block) = pick_buffer($node);
my $first = int(($buffer - 1) / 64) * 64;
$valid = cached_pages($node);
$node->safe_psql('postgres', 'SELECT pg_pcache_seal()');
$outcome = meet_error($node,
	qq{SELECT break_descriptor($buffer);
UPDATE t_heap SET grp = grp WHERE ctid = ANY (ARRAY(SELECT format('($block,%s)', i)::tid FROM generate_series(1, 60) i))},
	'descriptors, at byte ' . (DESCRIPTORS_OFFSET + ($buffer - 1) * DESCRIPTOR_SIZE),
	'descriptors');
is($outcome->{start}, 'warm', 'descriptors: warm start') or diag($outcome->{reason} // 'no word of it');
cmp_ok(cached_pages($node), '>=', $valid - 64, 'descriptors: the pages of the others were kept');
is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache
WHERE bufferid BETWEEN $first + 1 AND $first + 64 AND relfilenode IS NOT NULL"),
	0, 'descriptors: their slots are not used');
is(checksums($node, tables => [LOGGED]), $expected, 'descriptors: contents are right');
restart_warm($node, 'descriptors, restarted');

# A new pool forgets.
$node->stop;
is((pcache($node, 'init', '--force', '--directory' => pool_dir($node)))[0], 0, 'init --force');
$node->start;
is($node->safe_psql('postgres', 'SELECT retired, media FROM pg_pcache_pool'),
	'0|clean', 'a new pool: all slots are used');
restart_warm($node, 'a new pool');

# ---------------------------------------------------------------------------
# The file is cut off under the server, for all processes.
# ---------------------------------------------------------------------------
# Cut at one of the pages in the middle: that one and all behind it are lost.
$node->safe_psql('postgres', 'CHECKPOINT');
warm_up($node);
($buffer, $block, $page) = split /\|/, $node->safe_psql('postgres', q{
SELECT bufferid, relblocknumber,
  format('buffer %s, relation %s/%s/%s, fork main, block %s', bufferid,
         reltablespace, reldatabase, relfilenode, relblocknumber)
FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('t_heap')
ORDER BY bufferid OFFSET (SELECT count(*) / 2 FROM pg_buffercache
  WHERE relforknumber = 0 AND relfilenode = pg_relation_filenode('t_heap')) LIMIT 1});
is($node->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, 'truncated: all is sealed');
my $kept = $node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache
WHERE relforknumber = 0 AND relfilenode = pg_relation_filenode('t_heap') AND bufferid < $buffer");
my $size = -s pool_file($node);
$offset = log_offset($node);
truncate pool_file($node), read_superblock(pool_file($node))->{blocks_offset} + ($buffer - 1) * BLCKSZ
  or die "could not truncate the pool: $!";
# any process may be the first to notice, on any page
query_broken_server($node, "SELECT * FROM t_heap WHERE ctid = '($block,1)'");
$node->wait_for_log(qr/persistent cache: (?:kept|starting cold)/, $offset);
wait_until_back($node);
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'warm', 'truncated: warm start') or diag($outcome->{reason} // 'no word of it');
cmp_ok($outcome->{dropped}{'bad block'}, '>', 0, 'truncated: pages are lost');
like(slurp_file($node->logfile, $offset),
	qr/$MEMORY_ERROR/, 'truncated: the log names a page');
is(scalar(() = slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/g),
	1, 'truncated: there was one crash');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache
WHERE relforknumber = 0 AND relfilenode = pg_relation_filenode('t_heap') AND bufferid < $buffer"),
	'>=', $kept, 'truncated: all before it are kept');
is(-s pool_file($node), $size, 'truncated: the pool is whole again');
is($node->safe_psql('postgres', 'SELECT retired, media FROM pg_pcache_pool'),
	'0|clean', 'truncated: the new memory is used');
is(checksums($node, tables => [LOGGED]), $expected, 'truncated: contents are right');
restart_warm($node, 'truncated, restarted');

# Nothing left but the descriptors.
warm_up($node);
($buffer, $block, $page) = pick_buffer($node);
$offset = log_offset($node);
truncate pool_file($node), read_superblock(pool_file($node))->{blocks_offset}
  or die "could not truncate the pool: $!";
query_broken_server($node, "SELECT * FROM t_heap WHERE ctid = '($block,1)'");
$node->wait_for_log(qr/persistent cache: (?:kept|starting cold)/, $offset);
wait_until_back($node);
is(start_outcome($node, $offset)->{kept}, 0, 'truncated to the descriptors: no page is kept');
is(scalar(() = slurp_file($node->logfile, $offset) =~ /all server processes terminated; reinitializing/g),
	1, 'truncated to the descriptors: there was one crash');
is(checksums($node, tables => [LOGGED]), $expected, 'truncated to the descriptors: contents are right');
restart_warm($node, 'truncated to the descriptors, restarted');

# ---------------------------------------------------------------------------
# The kernel's own memory error.
# ---------------------------------------------------------------------------
SKIP:
{
	warm_up($node);
	($buffer, $block, $page) = pick_buffer($node);
	$node->safe_psql('postgres', 'SELECT pg_pcache_seal()');
	$valid = cached_pages($node);
	my $why = $node->safe_psql('postgres', "SELECT poison($buffer)");
	skip "the kernel does not poison memory for us: $why", 5 if $why ne '';

	$outcome = meet_error($node, "SELECT get_raw_page('t_heap', $block)", $page, 'poisoned');
	is($outcome->{dropped}{'bad block'}, 1, 'poisoned: one page was dropped for it');
	is(cached_pages($node), $valid - 1, 'poisoned: all others were kept');
	is_retired($node, { retired => 1, bytes => BLCKSZ }, 'poisoned');
	is(checksums($node, tables => [LOGGED]), $expected, 'poisoned: contents are right');
	restart_warm($node, 'poisoned, restarted');
}
$node->stop;

# ---------------------------------------------------------------------------
# Mode planned_restart: cold, as after any crash, but the slot is not used.
# ---------------------------------------------------------------------------
$node = start_node('planned', 'planned_restart');
$expected = checksums($node, tables => [LOGGED]);
warm_up($node);
($buffer, $block, $page) = pick_buffer($node);
$outcome = meet_error($node, "SELECT break($buffer); SELECT * FROM t_heap WHERE ctid = '($block,1)'",
	$page, 'planned_restart');
is($outcome->{start}, 'cold', 'planned_restart: cold start');
is_retired($node, { retired => 1, bytes => BLCKSZ }, 'planned_restart');
is(checksums($node, tables => [LOGGED]), $expected, 'planned_restart: contents are right');
restart_warm($node, 'planned_restart, restarted');
is_retired($node, { retired => 1, bytes => BLCKSZ }, 'planned_restart, restarted');

# A SIGBUS that is none of ours is what it was.
$offset = log_offset($node);
my $psql = $node->background_psql('postgres', on_error_stop => 0);
kill 'BUS', $psql->query_safe('SELECT pg_backend_pid()');
$node->wait_for_log(qr/was terminated by signal 7: Bus error/, $offset);
$node->wait_for_log(qr/persistent cache: starting cold/, $offset);
wait_until_back($node);
eval { $psql->quit };
unlike(slurp_file($node->logfile, $offset), $MEMORY_ERROR, 'another SIGBUS: is not called a memory error');
is_retired($node, { retired => 1, bytes => BLCKSZ }, 'another SIGBUS');
$node->stop;
done_testing();
