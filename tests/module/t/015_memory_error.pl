
# Copyright (c) 2026, the persistent-cache developers

# A memory error in the pool: the process that meets it dies, the next start is cold, and
# the memory is not used again, over restarts and kills, until pg_pcache rebuild has
# cleared it.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', mode => 'always', conf => "restart_after_crash = on\n");
my $pool = pool_file($node);
my $fault = qr/server process \(PID \d+\) was terminated by signal 7: [^\n]*, and may have overwritten cached pages before/;
my ($right, $buffer, $offset, $result);

sub in_the_view { return $node->safe_psql('postgres', 'SELECT retired, media, bad_bytes FROM pg_pcache_pool') }

# Without unlogged tables, which a crash empties.
sub logged { return contents($_[0]) =~ s/^t_(unlogged|seq).*\n//mgr }

# Is the buffer used, when more was read than there are buffers?
sub is_used
{
	my $used;

	$node->safe_psql('postgres', q{
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 20000) i;
SELECT pg_prewarm('scratch'), pg_prewarm('scratch')});
	$used = $node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE bufferid = $buffer AND relfilenode IS NOT NULL");
	$node->safe_psql('postgres', 'DROP TABLE scratch; CHECKPOINT');
	warm_pages($node);
	return $used;
}

sub is_retired
{
	my ($name) = @_;

	is(in_the_view(), '1|bad|8192', "$name: one buffer is not used");
	is(is_used(), 0, "$name: nothing was read into it");
	is(logged($node), $right, "$name: contents are right");
	return;
}

$node->start;
load_tables($node);
$node->safe_psql('postgres', "CREATE EXTENSION pg_pcache; CREATE FUNCTION memory_error(int) RETURNS void AS '$ENV{PCACHE_MEMORY_ERROR}', 'memory_error' LANGUAGE C");
warm_restart($node, 'before');
$right = logged($node);
$buffer = $node->safe_psql('postgres', q{SELECT max(bufferid) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0});
is(in_the_view(), '0|clean|0', 'before: no memory is bad');

kill_backend($node, $fault, 'BUS');
is(in_the_view(), '0|clean|0', 'another SIGBUS: is not taken for a memory error');

$offset = log_offset($node);
is(query_broken_server($node, "SELECT memory_error($buffer)"), 2, 'a memory error: the session ends');
$node->wait_for_log(qr/persistent cache: starting cold/, $offset);
wait_until_back($node);
like(start_outcome($node, $offset)->{reason}, qr/^$fault$/, 'a memory error: cold, as after any fault');
is_retired('a memory error');
warm_restart($node, 'a clean stop');
is_retired('a clean stop');
kill_seen($node);
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'warm', 'a kill: warm');
is_retired('a kill');

$node->stop;
$result = verb_json($node, 'rebuild');
is($result->{rc}, 0, 'rebuild') or diag($result->{stderr});
is($result->{bad_bytes}, BLCKSZ, 'rebuild: finds it');
is($result->{still_bad_bytes}, 0, 'rebuild: clears it');
is(read_bytes($pool, read_superblock($pool)->{blocks_offset} + ($buffer - 1) * BLCKSZ, BLCKSZ), "\0" x BLCKSZ, 'rebuild: leaves zeros there');
$node->start;
is(in_the_view(), '0|clean|0', 'rebuild: no memory is bad');
is(is_used(), 1, 'rebuild: the buffer is used');
is(logged($node), $right, 'rebuild: contents are right');
$node->stop;

# A start without the pool empties it, but stores nothing to a superblock on bad memory.
my $note = pack('QL', COPY_OFFSET, SUPERBLOCK_SIZE);
my $copy = read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE);
write_bytes($pool, 12288, $note . pack('L', crc32c($note)));
start_without($node, qr/persistent cache pool "[^"]*" cannot be used: too many of its blocks are bad/, 'a bad superblock');
ok(read_bytes($pool, COPY_OFFSET, SUPERBLOCK_SIZE) eq $copy, 'a bad superblock: is left alone');
$node->stop;
command_fails_like([ 'pg_pcache', 'rebuild', '-D', $node->data_dir ], qr/hint: To have a new, empty pool, run "pg_pcache init --force"/,
	'a bad superblock in memory: the pool has given its memory back');
command_ok([ 'pg_pcache', 'init', '--force', '-D', $node->data_dir ], 'a bad superblock in memory: a new pool');
$node->start;
is(in_the_view(), '0|clean|0', 'a bad superblock in memory: the new pool is used');
$node->stop;

# Nobody has noted that the page of a superblock, of its copy or of the notes is bad.
for my $page (0, 1, 2)
{
	my %bad = (MACHINE_BAD_PAGE => (stat $pool)[1] . " $page");

	isnt(on_machine(\%bad, sub { (pcache($node, 'verify'))[0] }), 0, "page $page cannot be read: verify foretells it");
	on_machine(\%bad, sub { start_without($node, qr/persistent cache pool "[^"]*" cannot be used: too many of its blocks are bad/, "page $page cannot be read") });
	$node->stop;
	command_ok([ 'pg_pcache', 'init', '--force', '-D', $node->data_dir ], "page $page cannot be read: a new pool");
	$node->start;
	$node->stop;
}

done_testing();
