
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache restart: clients of a PgBouncer notice nothing, what speaks against a restart is
# found before anything has changed, and whatever fails, the clients go on.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCacheBouncer;
use PCacheKilled qw(child children);
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'pgbouncer is not installed' if !has_pgbouncer();

my $node = module_node('main', conf => "max_prepared_transactions = 2\n", standby => 1);
my ($json, $rc, $out, $err, $pid, $offset);

# What the server was started with, and where from.
local $ENV{PCACHE_TEST_MARK} = 'kept';
$node->start;
delete $ENV{PCACHE_TEST_MARK};
load_tables($node);
$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_pcache');
system_or_bail('pgbench', '-q', '-i', '-s' => 1, '-h' => $node->host, '-p' => $node->port, 'postgres');

my $pooled = start_pgbouncer('transaction', [ postgres => $node ], pool_mode => 'transaction');
my $session = start_pgbouncer('session', [ postgres => $node ], pool_mode => 'session');

# The PID of the server, or 0.
sub server_pid
{
	my $file = $node->data_dir . '/postmaster.pid';
	return -e $file ? (split /\n/, slurp_file($file))[0] : 0;
}

# Run the verb, with JSON, and notice which server runs now.
sub restart
{
	my (@options) = @_;

	$pid = server_pid();
	$json = verb_json($node, 'restart', @options);
	$node->_update_pid(server_pid() != 0);
	return $json;
}

# A test: it was refused, for that reason, the server goes on, and the poolers were not touched.
sub refused
{
	my ($pattern, $name, @options) = @_;
	my @before = map { bouncer_offset($_) } $pooled, $session;

	restart(@options);
	is($json->{rc}, 1, "$name: refused");
	like($json->{stderr}, $pattern, '... for that reason');
	is(server_pid(), $pid, '... and the server goes on');
	unlike(bouncer_log($pooled, $before[0]) . bouncer_log($session, $before[1]), qr/PAUSE/, '... and nothing was paused');
	return;
}

# A test: it was restarted, warm.
sub restarted
{
	my ($name, @options) = @_;

	restart(@options);
	is($json->{rc}, 0, "$name: restarted");
	is($json->{last_start}, 'warm', '... warm');
	isnt(server_pid(), $pid, '... and it is another server');
	is($json->{server_pid}, server_pid(), '... with that PID');
	return;
}

# --------------------------------------------------------- a restart as it is
warm_pages($node);
$offset = log_offset($node);
restarted('without a pooler');
cmp_ok($json->{kept}, '>', 1000, '... and pages were kept');
is($node->safe_psql('postgres', 'SHOW cluster_name'), 'main', '... with the arguments that it had');
like(slurp_file("/proc/" . server_pid() . "/environ"), qr/(^|\0)PCACHE_TEST_MARK=kept\0/, '... and the environment');
like(slurp_file($node->logfile, $offset), qr/database system is ready to accept connections/, '... and it logs where it did');
cmp_ok($json->{phases}{$_}, '>', 0, "... $_ took time") for qw(check checkpoint stop start);
cmp_ok($json->{outage}, '>=', $json->{phases}{stop} + $json->{phases}{start} - 1, '... and the outage is no shorter than these');

$pid = server_pid();
($rc, $out, $err) = pcache($node, 'restart', '--dry-run', conninfo($pooled));
is($rc, 0, 'a dry run: it would be warm');
like($out, qr/^Dry run: .*^next start: WARM.*^pooler: .*PgBouncer.*^estimated outage: /ms, '... and says what it would do');
is(server_pid(), $pid, '... and does not do it');
unlike(bouncer_log($pooled), qr/PAUSE/, '... nor pauses');

my $checkpoints = $node->safe_psql('postgres', 'SELECT checkpoint_lsn FROM pg_control_checkpoint()');
($rc, $out, $err) = pcache($node, 'prepare');
is($rc, 0, 'prepare: it would be warm');
isnt($node->safe_psql('postgres', 'SELECT checkpoint_lsn FROM pg_control_checkpoint()'), $checkpoints, '... and made a checkpoint');
is(server_pid(), $pid, '... and nothing else');

# --------------------------------------------------------- clients notice nothing
my $tpcb = start_load($pooled);
my $select = start_load($pooled, '-S');
my $connecting = start_load($session, '-S', '-C');
my $history = $node->safe_psql('postgres', 'SELECT count(*) FROM pgbench_history');

for my $i (1 .. 10)
{
	restarted("restart $i under load", conninfo($pooled), conninfo($session));
	ok($json->{clients_waited} >= $json->{outage}, '... while clients waited');
}
load_goes_on($tpcb, 'TPC-B after ten restarts');
load_goes_on($select, 'SELECT after ten restarts');
load_goes_on($connecting, 'sessions after ten restarts');
is(end_load($_->[0]), '', "$_->[1]: not one transaction has failed")
  for [ $tpcb, 'TPC-B' ], [ $select, 'SELECT' ], [ $connecting, 'sessions' ];
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM pgbench_history'), '>', $history, 'and the transactions are there');
is($node->safe_psql('postgres', 'SELECT (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)'), 't', '... whole');

# --------------------------------------------------------- what speaks against it
$node->append_conf('postgresql.conf', "work_mem = nonsense\n");
refused(qr/invalid value for parameter "work_mem"/, 'a wrong setting', conninfo($pooled));
$node->adjust_conf('postgresql.conf', 'work_mem', undef);

my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
append_to_file($node->data_dir . '/pg_hba.conf', "local nonsense\n");
refused(qr/does not start with line \d+ of pg_hba\.conf/, 'a wrong line of pg_hba.conf', conninfo($pooled));
unlink $node->data_dir . '/pg_hba.conf';
append_to_file($node->data_dir . '/pg_hba.conf', $hba);

refused(qr/could not connect to the pooler/, 'a pooler that is not there', conninfo($pooled), '--pgbouncer=host=/nonexistent port=1');
refused(qr/could not connect to the pooler .*"pgbouncer" does not exist/, 'a server that is no pooler', "--pgbouncer=host=" . $node->host . " port=" . $node->port . ' dbname=postgres');
refused(qr/no database of pooler .* leads to the server/, 'a pooler of another server',
	conninfo(start_pgbouncer('other', [ postgres => 'host=127.0.0.1 port=1' ])));
refused(qr/does not lead to the server with PID \d+/, 'a connection through a pooler', '-h' => $pooled->{dir}, '-p' => $pooled->{port});
refused(qr/--max-pause is 1 ms/, 'a pause that is too long', '--max-pause=1ms', conninfo($pooled));
refused(qr/invalid value "5 weeks" for option --drain-timeout/, 'a time that is none', '--drain-timeout=5 weeks');
refused(qr/invalid value "panic" for option --on-failure/, 'an unknown reaction', '--on-failure=panic', conninfo($pooled));
refused(qr/option --on-failure can only be used together with --pgbouncer/, 'one without a pooler', '--on-failure=pause');

$node->append_conf('postgresql.conf', "pcache.mode = off\n");
refused(qr/would start cold: .*mode.* is off.*--allow-cold/s, 'a start that is cold', conninfo($pooled));
restart('--allow-cold', conninfo($pooled));
is($json->{rc}, 2, '... and allowed: restarted, cold');
is($json->{last_start}, 'off', '... which is said');
is_deeply($json->{settings}, [ { name => 'pcache.mode', now => 'planned_restart', then => 'off' } ], '... as is the setting that has changed');
isnt(server_pid(), $pid, '... and it is another server');
restart(conninfo($pooled));
is($json->{rc}, 2, 'without a cache there is none to lose');
isnt(server_pid(), $pid, '... and it is another server');
$node->adjust_conf('postgresql.conf', 'pcache.mode', undef);
$node->append_conf('postgresql.conf', "pcache.mode = planned_restart\n");
refused(qr/would start cold/, 'a first start with the cache');
restart('--allow-cold');
is($json->{rc}, 2, '... is cold, and said to be');
warm_pages($node);

# --------------------------------------------------------- those who are in the way
my $idle = $node->background_psql('postgres');
my $idle_pid = $idle->query_safe('BEGIN; SELECT pg_backend_pid()');
$node->poll_query_until('postgres', "SELECT now() > xact_start + interval '5 s' FROM pg_stat_activity WHERE pid = $idle_pid");
# a time that a busy machine needs for the pause of nobody is no more than that
restarted('an idle transaction', '--drain-timeout=5s', conninfo($pooled));
like($json->{stderr}, qr/a transaction has been open for \d+ s: PID $idle_pid, .*idle in transaction/, '... and it is named');
like("@{$json->{warnings}}", qr/PID $idle_pid/, '... in JSON as well');
eval { $idle->quit };

$node->safe_psql('postgres', "BEGIN; UPDATE pgbench_branches SET bbalance = bbalance; PREPARE TRANSACTION 'two'");
restarted('a prepared transaction', conninfo($pooled));
like("@{$json->{warnings}}", qr/transaction "two" is prepared/, '... and it is named');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'two'");

$node->safe_psql('postgres', 'CREATE ROLE restarter LOGIN; GRANT pg_monitor, pg_checkpoint TO restarter');
restart('--dry-run', '--username=restarter');
like("@{$json->{warnings}}", qr/could not find out whether pg_hba\.conf is right: .*permission denied/, 'what a role may not ask is among the warnings in JSON');

my $backup = $node->background_psql('postgres');
$backup->query_safe("SELECT pg_backup_start('x', true)");
refused(qr/a backup is running.*--force/s, 'a backup', conninfo($pooled));
restarted('... with --force', '--force', conninfo($pooled));
eval { $backup->quit };

# A session of a pooler that shares by session is not left between transactions.
my $client = start_client($session);

sub start_client
{
	my ($bouncer) = @_;
	my %client = (in => "SELECT 'here';\n", out => '', err => '');

	$client{process} = IPC::Run::start([ 'psql', '-XAtq', '-h' => $bouncer->{dir}, '-p' => $bouncer->{port}, 'postgres' ],
		'<' => \$client{in}, '>' => \$client{out}, '2>' => \$client{err});
	IPC::Run::pump $client{process} until $client{out} =~ /here/;
	return \%client;
}

sub end_client
{
	my ($client) = @_;

	$client->{in} .= "SELECT 'still' || ' here';\n";
	IPC::Run::pump $client->{process} until $client->{out} =~ /still here/ || !$client->{process}->pumpable;
	my $ok = $client->{out} =~ /still here/;
	$client->{in} .= "\\q\n";
	$client->{process}->finish;
	return $ok;
}

$offset = bouncer_offset($session);
my $other = bouncer_offset($pooled);
restart('--drain-timeout=300ms', conninfo($pooled), conninfo($session));
is($json->{rc}, 1, 'a session that does not end: not restarted');
is(server_pid(), $pid, '... and the server goes on');
like($json->{stderr}, qr/could not pause within 0\.3 s.*keep pooler .* from being paused.*PID \d+: user/s, '... and who keeps it is named');
like($json->{stderr}, qr/waits until the clients of database "postgres" disconnect \(1 now\)/, '... of which it had warned');
like(bouncer_log($session, $offset), qr/PAUSE.*RESUME/s, '... and its pooler was resumed');
like(bouncer_log($pooled, $other), qr/PAUSE.*RESUME/s, '... as was the other');

# --------------------------------------------------------- we are ended
# The session still keeps its pooler from being paused, so we wait.
sub start_restart
{
	my (@options) = @_;
	my %tool = (out => '', err => '');

	$pid = server_pid();
	$tool{process} = IPC::Run::start([ 'pg_pcache', '-D' => $node->data_dir, 'restart', '-P', @options ], '<' => \undef, '>' => \$tool{out}, '2>' => \$tool{err});
	return \%tool;
}

sub end_restart
{
	my ($tool, $signal) = @_;

	$tool->{process}->signal($signal) if $signal;
	eval { $tool->{process}->finish };
	note($tool->{err});
	return ($? & 127) ? -($? & 127) : $? >> 8;
}

my $waiting = start_load($pooled, '-S');
for my $signal (qw(INT TERM HUP))
{
	my $bouncer = bouncer_offset($session);
	my $tool = start_restart('--drain-timeout=10min', conninfo($pooled), conninfo($session));

	wait_for_bouncer($_, qr/PAUSE command issued/, $_ == $session ? $bouncer : 0) for $session;
	is(end_restart($tool, $signal), 1, "SIG$signal before the stop: not restarted");
	like($tool->{err}, qr/interrupted.*nothing has changed/s, '... which is said');
	like(bouncer_log($session, $bouncer), qr/RESUME command issued/, '... and the pooler was resumed');
	is(server_pid(), $pid, '... and the server goes on');
	load_goes_on($waiting, '... and');
}

# One that hangs keeps no other one paused.
($offset, $other) = (bouncer_offset($session), bouncer_offset($pooled));
my $hanging = start_restart('--drain-timeout=3s', conninfo($session), conninfo($pooled));
wait_for_bouncer($session, qr/PAUSE command issued/, $offset);
wait_for_bouncer($pooled, qr/PAUSE command issued/, $other);
$session->{process}->signal('STOP');
load_goes_on($waiting, 'a pooler that hangs, and the other one');
$session->{process}->signal('CONT');
is(end_restart($hanging), 1, '... and once it goes on, nothing has changed');
is(server_pid(), $pid, '... and the server goes on');

$offset = bouncer_offset($session);
my $killed = start_restart('--drain-timeout=10min', conninfo($pooled), conninfo($session));
wait_for_bouncer($session, qr/PAUSE command issued/, $offset);
is(end_restart($killed, 'KILL'), -9, 'killed while it pauses');
wait_for_bouncer($session, qr/RESUME command issued/, $offset);
load_goes_on($waiting, '... and the watchdog resumes the poolers:');
is(server_pid(), $pid, '... and the server goes on');
ok(end_client($client), '... as does the session');
end_load($waiting);

# Somebody else pauses the pooler, before we have come to that.
my $checkpointer = child($pid, 'checkpointer') // die 'no checkpointer';
kill 'STOP', $checkpointer;
$killed = start_restart(conninfo($pooled));
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ILIKE 'checkpoint%' AND state = 'active'}) or die 'no checkpoint';
console($pooled, 'PAUSE');
$pooled->{process}->signal('STOP');
$offset = bouncer_offset($pooled);
kill 'CONT', $checkpointer;
IPC::Run::pump $killed->{process} until $killed->{err} =~ /^pause$/m || !$killed->{process}->pumpable;
select undef, undef, undef, 0.2;
my @watch = keys %{ children($killed->{process}{KIDS}[0]{PID}) };
is(scalar @watch, 1, 'killed before it pauses: somebody watches');
is(end_restart($killed, 'KILL'), -9, '... and it is killed');
$pooled->{process}->signal('CONT');
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if !-e "/proc/$watch[0]";
	select undef, undef, undef, 0.1;
}
unlike(bouncer_log($pooled, $offset), qr/RESUME/, '... and who had paused the pooler finds it so');
is(server_pid(), $pid, '... and the server goes on');
console($pooled, 'RESUME');

# A stop waits for a receiver of WAL that does not answer: until then, we get a signal, or
# our patience ends, which a pattern of what we say tells.
sub held_restart
{
	my ($signal, @options) = @_;
	my $log = log_offset($node);

	my $receiver = IPC::Run::start([ 'pg_receivewal', '--no-loop', '-D' => PostgreSQL::Test::Utils::tempdir(), '-h' => $node->host, '-p' => $node->port ],
		'<' => \undef, '>' => '/dev/null', '2>' => '/dev/null');
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'");
	$receiver->signal('STOP');
	my $tool = start_restart(@options);
	$node->wait_for_log(qr/received fast shutdown request/, $log);
	if (ref $signal)
	{
		IPC::Run::pump $tool->{process} until $tool->{err} =~ $signal || !$tool->{process}->pumpable;
	}
	else
	{
		$tool->{process}->signal($signal);
	}
	$receiver->signal('KILL');
	eval { $receiver->finish };
	return ($tool, $log);
}

my $held = start_load($pooled, '-S');
my ($tool, $log) = held_restart('INT', conninfo($pooled));
is(end_restart($tool), 0, 'SIGINT after the stop: the restart goes on');
like($tool->{err}, qr/so the restart goes on/, '... which is said');
$node->_update_pid(1);
isnt(server_pid(), $pid, '... and it is another server');
load_goes_on($held, '... and');

$offset = bouncer_offset($pooled);
($tool, $log) = held_restart('KILL', conninfo($pooled));
$node->wait_for_log(qr/database system is ready to accept connections/, $log);
pass('killed after the stop: the watchdog starts the server');
wait_for_bouncer($pooled, qr/RESUME command issued/, $offset);
$node->_update_pid(1);
load_goes_on($held, '... and resumes the poolers:');
is(end_load($held), '', '... and no transaction has failed');

{
	local $ENV{PGCTLTIMEOUT} = 1;
	$offset = bouncer_offset($pooled);
	($tool, $log) = held_restart(qr/is started as soon as it has/, conninfo($pooled));
	wait_for_bouncer($pooled, qr/PAUSE.*RESUME command issued/s, $offset);
	pass('a stop that takes too long: the pooler is resumed meanwhile');
	is(end_restart($tool), 0, '... and the server is started when it has stopped');
	$node->_update_pid(1);
	isnt(server_pid(), $pid, '... and it is another server');
}

# --------------------------------------------------------- a command
my $go = PostgreSQL::Test::Utils::tempdir() . '/go';
my $again = "pg_ctl -D '" . $node->data_dir . "' -l '" . $node->logfile . "' -w restart";
$held = start_load($pooled, '-S');
$offset = bouncer_offset($pooled);
$killed = start_restart(conninfo($pooled), "--command=touch $go.begun; while [ ! -e $go ]; do sleep 0.02; done; $again >/dev/null 2>&1");
wait_for_bouncer($pooled, qr/PAUSE command issued/, $offset);
select undef, undef, undef, 0.01 until -e "$go.begun";
$log = log_offset($node);
$killed->{process}->signal('KILL');
append_to_file($go, '');
is(end_restart($killed), -9, 'killed while a command restarts the server');
$node->wait_for_log(qr/database system is ready to accept connections/, $log);
wait_for_bouncer($pooled, qr/RESUME command issued/, $offset);
$node->_update_pid(1);
load_goes_on($held, '... and the watchdog resumes the poolers:');
is(end_load($held), '', '... and no transaction has failed');
restarted('a command', "--command=$again", conninfo($pooled));
$held = start_load($pooled, '-S');
$offset = bouncer_offset($pooled);
restart('--command=exit 7', conninfo($pooled));
is($json->{rc}, 1, 'a command that fails: not restarted');
like($json->{stderr}, qr/command "exit 7" failed/, '... which is said');
is(server_pid(), $pid, '... and the server goes on');
like(bouncer_log($pooled, $offset), qr/PAUSE.*RESUME/s, '... and the pooler was resumed');
load_goes_on($held, '... and');
is(end_load($held), '', '... and no transaction has failed');

# --------------------------------------------------------- a start that fails
# A library that is not there passes "postgres -C".
my $libraries = $node->safe_psql('postgres', 'SHOW shared_preload_libraries');
$offset = bouncer_offset($pooled);
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache, nonexistent'\n");
restart(conninfo($pooled));
is($json->{rc}, 3, 'a start that fails');
like($json->{stderr}, qr/the server has not started.*could not access file "nonexistent"/s, '... and the end of the log says why');
is($json->{last_start}, undef, '... and JSON that it has not');
like(bouncer_log($pooled, $offset), qr/PAUSE.*RESUME/s, '... and the pooler was resumed');
is(server_pid(), 0, '... and there is no server');
restart();
is($json->{rc}, 1, 'no server: refused');
like($json->{stderr}, qr/there is no server to restart/, '... for that reason');

$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'\n");
$node->start;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache, nonexistent'\n");
$offset = bouncer_offset($pooled);
restart('--on-failure=pause', conninfo($pooled));
is($json->{rc}, 3, 'a start that fails, with --on-failure=pause');
unlike(bouncer_log($pooled, $offset), qr/RESUME/, '... and the pooler stays paused');
like($json->{stderr}, qr/the poolers stay paused/, '... which is said');
$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'\n");
$node->start;
console($pooled, 'RESUME');
is($node->safe_psql('postgres', 'SELECT 1'), 1, '... until somebody resumes it');

# --------------------------------------------------------- a pooler of several servers
my $several = start_pgbouncer('several', [ here => $node, away => 'host=127.0.0.1 port=1', there => $node ], pool_mode => 'transaction');
restarted('a pooler of several servers', conninfo($several));
like(bouncer_log($several), qr/PAUSE 'here' command issued/, '... and only our database was paused');
like(bouncer_log($several), qr/PAUSE 'there' command issued/, '... and the other one');
unlike(bouncer_log($several), qr/PAUSE command|PAUSE 'away'/, '... and that of no other server');
$offset = bouncer_offset($several);
restarted('a pooler whose database is named', conninfo($several, 'dbname=there'));
like(bouncer_log($several, $offset), qr/PAUSE 'there'.*RESUME 'there'/s, '... which is paused');
unlike(bouncer_log($several, $offset), qr/PAUSE 'here'/, '... and no other');
restart(conninfo($several, 'dbname=there,nowhere'));
is($json->{rc}, 1, 'a database that the pooler does not have: refused');
like($json->{stderr}, qr/no such database: nowhere/, '... for that reason');
like((split /PAUSE 'there' command issued/, bouncer_log($several))[-1], qr/RESUME 'there'/, '... and the other one was resumed');
console($several, 'PAUSE here');
restart(conninfo($several));
is($json->{rc}, 1, 'a database that is paused already: refused');
like($json->{stderr}, qr/is paused already/, '... for that reason');
unlike((split /PAUSE 'here' command issued/, bouncer_log($several))[-1], qr/RESUME/, '... and stays paused');
console($several, 'RESUME here');

# --------------------------------------------------------- a standby
my $standby = PostgreSQL::Test::Cluster->new('standby');
$node->backup('b');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "pcache.directory = '" . pool_directory_of('standby') . "'\n");
$standby->start;
$node->wait_for_catchup($standby);

sub pool_directory_of { my ($name) = @_; return pool_file($node) =~ s{/pool$}{-$name}r }

$json = verb_json($standby, 'restart', '--allow-cold');
is($json->{rc}, 0, 'a standby: restarted') or diag($json->{stderr});
is($json->{last_start}, 'warm', '... warm');
$standby->_update_pid(1);
$standby->stop;

$node->stop;
done_testing();
