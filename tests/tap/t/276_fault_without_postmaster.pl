
# Copyright (c) 2026, the persistent-cache developers

# A process dies of a fault, and the postmaster is killed before it hears of
# that.  The next start must know of the fault all the same.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

my $node = new_node('main', mode => 'always');
my ($expected, $valid);

$node->start;
load_data($node);
$node->safe_psql('postgres', q{
CREATE FUNCTION panic() RETURNS void AS 'pcache_inject', 'pcache_inject_panic' LANGUAGE C;
CREATE FUNCTION abort() RETURNS void AS 'pcache_inject', 'pcache_inject_abort' LANGUAGE C;
CREATE FUNCTION wild_store() RETURNS void AS 'pcache_inject', 'pcache_inject_wild_store' LANGUAGE C});

# What the process itself does wrong; signals that are sent, to a process of
# some kind.  FPE is an error in a session.
for my $case (
	[ 'wild store', 'client backend', 11, 'SELECT wild_store()' ],
	[ 'abort', 'client backend', 6, 'SELECT abort()' ],
	[ 'SIGILL', 'client backend', 4 ],
	[ 'SIGTRAP', 'client backend', 5 ],
	[ 'SIGSYS', 'client backend', 31 ],
	[ 'SIGBUS', 'client backend', 7 ],
	[ 'SIGSEGV', 'checkpointer', 11 ],
	[ 'SIGFPE', 'background writer', 8 ],
	[ 'SIGSEGV', 'persistent cache sealer', 11 ],
	[ 'PANIC', 'client backend', 0, 'SELECT panic()' ],
	[ 'SIGKILL', 'client backend', 0 ])
{
	my ($name, $type, $signal, $sql) = @$case;

	$name = "$name of a $type";
	($expected, $valid) = settle($node);
	die_unnoticed($node, $type, $name =~ /KILL/ ? 9 : $signal, $sql, $name);
	if ($signal != 0)
	{
		cold_after_crash($node, 'suspect_memory',
			qr/^server process \(PID \d+\) was terminated by signal $signal: /, $name);
	}
	else
	{
		warm_after_crash($node, $valid, $name, ratio => 0.95);
	}
	contents_right($node, $expected, $name);
}
$node->stop;

done_testing();

# Change tables, and have all pages sealed.
sub settle
{
	my ($who) = @_;
	my $count;

	$who->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 17 = 3');
	$expected = checksums($who, tables => [LOGGED]);
	warm_up($who);
	$count = permanent_buffers($who);
	wait_for_seals();
	return ($expected, $count);
}

# A process dies while the postmaster is stopped, and then all others are killed.
sub die_unnoticed
{
	my ($who, $type, $signal, $sql, $name) = @_;
	my $session = $who->background_psql('postgres', on_error_stop => 0);
	my $pid = $type eq 'client backend' ?
	  $session->query_safe('SELECT pg_backend_pid()') :
	  $who->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'");

	like($pid, qr/^\d+$/, "$name: there is one");
	kill 'STOP', $who->{_pid};
	if (defined $sql)
	{
		$session->{stdin} .= "$sql;\n";
		$session->{run}->pump_nb;
	}
	else
	{
		kill $signal, $pid;
	}
	PCache::wait_for_death($pid);
	kill_all($who);
	eval { $session->{run}->kill_kill };
	return;
}
