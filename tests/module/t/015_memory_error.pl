
# Copyright (c) 2026, the persistent-cache developers

# Memory of the pool that cannot be read: whoever meets it dies, the server begins again,
# cold, and no start uses that memory until pg_pcache rebuild has cleared it.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

sub in_buffer
{
	my ($node, $buffer) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_buffercache WHERE bufferid = $buffer AND relfilenode IS NOT NULL");
}

for my $mode ('planned_restart', 'always')
{
	my $node = module_node($mode, mode => $mode, conf => "restart_after_crash = on\n");
	my ($right, $buffer, $offset, $bad_at, $verdict);

	$node->start;
	load_tables($node);
	$node->safe_psql('postgres', "CREATE EXTENSION pg_pcache; CREATE FUNCTION memory_error(int) RETURNS void AS '$ENV{PCACHE_MEMORY_ERROR}', 'memory_error' LANGUAGE C");
	warm_restart($node, $mode);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$right = contents($node) =~ s/^t_(unlogged|seq).*\n//mgr;
	$buffer = $node->safe_psql('postgres', q{
SELECT bufferid FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_heap') AND relforknumber = 0 AND relblocknumber = 20});
	$bad_at = read_superblock(pool_file($node))->{blocks_offset} + ($buffer - 1) * BLCKSZ;

	$offset = log_offset($node);
	is(query_broken_server($node, "SELECT memory_error($buffer)"), 2, "$mode: the session ends");
	$node->wait_for_log(qr/was terminated by signal 7: .*persistent cache: starting cold/s, $offset);
	wait_until_back($node);
	like(start_outcome($node, $offset)->{reason}, qr/^server process \(PID \d+\) was terminated by signal 7: .*, and may have overwritten cached pages before$/, "$mode: cold, because of the fault");
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right, "$mode: contents are right");

	# whatever is read, that buffer is not used
	warm_pages($node);
	$node->safe_psql('postgres', 'CREATE TABLE filler AS SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 40000) i');
	is(in_buffer($node, $buffer), 0, "$mode: the buffer is not used");
	is($node->safe_psql('postgres', 'SELECT media, bad_bytes FROM pg_pcache_pool'), 'bad|8192', "$mode: the view");
	$node->safe_psql('postgres', 'DROP TABLE filler');
	warm_restart($node, "$mode, once more");
	is(in_buffer($node, $buffer), 0, "$mode, once more: the buffer is not used");

	# until it is repaired
	$node->stop;
	$verdict = verb_json($node, 'rebuild');
	is($verdict->{rc}, 0, "$mode: rebuild") or diag($verdict->{stderr});
	is($verdict->{bad_bytes}, BLCKSZ, "$mode: rebuild finds it");
	is($verdict->{still_bad_bytes}, 0, "$mode: rebuild clears it");
	is(read_bytes(pool_file($node), $bad_at, BLCKSZ), "\0" x BLCKSZ, "$mode: rebuild leaves zeros there");
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE filler AS SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 40000) i');
	is(in_buffer($node, $buffer), 1, "$mode, repaired: the buffer is used");
	$node->stop;
}

done_testing();
