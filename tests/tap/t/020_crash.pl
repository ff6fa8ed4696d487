
# Copyright (c) 2026, the persistent-cache developers

# In mode planned_restart nothing of a server that crashed is kept: the next
# start is cold, has the right data, and is warm again after a clean stop.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

my $dirty = qr/^the server was not shut down cleanly$/;
my $node = new_node('main');

$node->start;
load_data($node);

my $expected = checksums($node, tables => [LOGGED]);
my $others = 0;

for my $case (
	[ 'stop immediate', sub { $node->stop('immediate') }, sub { $node->start } ],
	[ 'kill -9 of all', sub { kill_all($node) }, sub { $node->start } ],
	[ 'crash of a backend', \&crash_backend, sub { } ],
	[ 'kill -9 of the checkpointer', \&crash_checkpointer, sub { } ])
{
	my ($name, $crash, $start) = @$case;
	my $offset;

	$node->safe_psql('postgres',
		"INSERT INTO t_unlogged VALUES (0, 'x') ON CONFLICT DO NOTHING");
	warm_up($node);
	$node->safe_psql('postgres', 'CHECKPOINT');

	# something for redo to do
	$node->safe_psql('postgres',
		"INSERT INTO t_other SELECT i, '$name' FROM generate_series(1, 1000) i");
	$others += 1000;

	$offset = log_offset($node);
	$crash->();
	if (!defined $node->{_pid})
	{
		my $verdict = verify_json($node);

		is($verdict->{rc}, 2, "$name: pg_pcache verify says cold");
		is($verdict->{reason}, 'dirty', "$name: pg_pcache verify says why");
	}
	$start->();

	is_cold($node, $offset, $dirty, $name);
	is(checksums($node, tables => [LOGGED]), $expected,
		"$name: contents are right");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_other'),
		$others, "$name: what was committed is there");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t_unlogged'),
		0, "$name: the unlogged table was reset");
	restart_warm($node, "$name, then a clean stop");
	is(checksums($node, tables => [LOGGED]), $expected,
		"$name, then a clean stop: contents are right");
	pages_equal_disk($node, "$name, then a clean stop");
}

# A crash between two clean stops must not let what the first one saved pass
# for what is there now.
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = -grp WHERE id <= 5000');
$expected = checksums($node, tables => [LOGGED]);
$node->stop('immediate');
my $offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'cold', 'changed, crashed: cold');
is(checksums($node, tables => [LOGGED]), $expected,
	'changed, crashed: contents are right');
$node->stop('immediate');
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'cold', 'crashed again: cold');
is(checksums($node, tables => [LOGGED]), $expected,
	'crashed again: contents are right');
$node->stop;

done_testing();

sub crash_backend
{
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query_safe('SELECT pg_backend_pid()');

	crash_and_wait($pid);
	eval { $psql->quit };
	return;
}

sub crash_checkpointer
{
	crash_and_wait($node->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'}));
	return;
}

# Kill a child of a postmaster that starts again after that, and wait for it.
sub crash_and_wait
{
	my ($pid) = @_;
	my $offset;

	$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = on');
	$node->reload;
	$node->poll_query_until('postgres', 'SHOW restart_after_crash', 'on')
	  or die 'no reload';
	$offset = log_offset($node);
	kill 'KILL', $pid;
	$node->wait_for_log(qr/persistent cache: starting|persistent cache: kept/, $offset);
	wait_until_back($node);
	return;
}
