
# Copyright (c) 2026, the persistent-cache developers

# After a clean stop everything is there: pages, usage counts, unlogged
# tables; nothing is read again, and all of it is right.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $offset = log_offset($node);

$node->start;
load_data($node);
is_cold_new();

my $expected = checksums($node);
my $valid = warm_up($node);

is(relation_reads($node), 0, 'all of the tables fits into shared buffers');

for my $mode (qw(fast smart))
{
	my $usage = usage_counts($node);

	$offset = log_offset($node);
	$valid = valid_buffers($node);
	$node->stop($mode);
	is(verify_json($node)->{rc}, 0, "stop $mode: pg_pcache verify says warm");
	$node->start;

	# first of all, before anything else touches the buffers
	my $usage_now = usage_counts($node);
	my $outcome = is_warm($node, $offset, $valid, "stop $mode");

	is_deeply($outcome->{dropped}, {}, "stop $mode: nothing was dropped");
	like($outcome->{log}, qr/persistent cache: saved $outcome->{saved} pages/,
		"stop $mode: kept what was saved");
	compare_usage($usage, $usage_now, "stop $mode");
	is(relation_reads($node), 0, "stop $mode: no block is read again");
	is(checksums($node), $expected, "stop $mode: contents are the same");
	pages_equal_disk($node, "stop $mode");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'),
		5000, "stop $mode: the unlogged table is still there");
}

# Changes made on kept pages survive, and so do their pages.
$node->safe_psql('postgres',
	'UPDATE t_heap SET grp = grp + 1 WHERE id % 50 = 0;'
	  . 'DELETE FROM t_toast WHERE id % 10 = 0;'
	  . 'UPDATE t_unlogged SET filler = id WHERE id % 3 = 0');
$expected = checksums($node);
$valid = valid_buffers($node);
$offset = log_offset($node);
$node->restart;
is_warm($node, $offset, $valid, 'after changes');
is(checksums($node), $expected, 'after changes: contents are the same');
pages_equal_disk($node, 'after changes');

# An autovacuum-less cluster that does nothing at all must not lose pages
# from one restart to the next.
$valid = valid_buffers($node);
$offset = log_offset($node);
$node->restart for 1 .. 3;
is_warm($node, $offset, $valid, 'three restarts in a row');

# What is in the files is the truth: a start without the pool sees the same.
$node->stop;
is(checksums_without_pool($node), $expected,
	'a cold start of the same data directory sees the same');

# These tests can tell a cold start from a warm one.
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/checkpoint|without the pool/, 'control');
cmp_ok(relation_reads($node), '>', 0, 'a cold start has to read blocks');

$node->stop;
done_testing();

sub is_cold_new
{
	my $outcome = start_outcome($node, $offset);

	is($outcome->{start}, 'cold', 'the first start is cold');
	is($outcome->{reason}, 'the pool is empty', 'because the pool is new');
	return;
}

# Reading pg_buffercache itself uses catalog pages, so only our own relations
# are compared, each buffer by itself.
sub compare_usage
{
	my ($before, $after, $name) = @_;
	my @different = grep { ($after->{$_} // -1) != $before->{$_} } sort keys %$before;

	cmp_ok(scalar keys %$before, '>', 500, "$name: usage counts compared");
	is("@different[0 .. ($#different > 4 ? 4 : $#different)]",
		'', "$name: each page has its buffer and its usage count again");
	return;
}
