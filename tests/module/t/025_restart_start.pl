
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache restart: whom a stop waits for, what would be started, and a container that would
# end with its server.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use JSON::PP qw();
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my $data = $node->data_dir;
my $bin = $node->config_data('--bindir');
my ($rc, $out, $err, $json);

$node->start;
load_tables($node);
warm_pages($node);

sub server_pid { return -e "$data/postmaster.pid" ? (split /\n/, slurp_file("$data/postmaster.pid"))[0] : 0 }

# --------------------------------------------------------- whom the stop waits for
my $session = $node->background_psql('postgres');
my $backend = $session->query_safe('SELECT pg_backend_pid()');
my $tool_err = '';
kill 'STOP', $backend;
my $tool = IPC::Run::start([ 'pg_pcache', '-D' => $data, 'restart', '--json' ], '<' => \undef, '>' => \$out, '2>' => \$tool_err);
IPC::Run::pump $tool until $tool_err =~ /has not stopped yet/ || !$tool->pumpable;
kill 'CONT', $backend;
$tool->finish;
is($? >> 8, 0, 'a session that does not end: restarted');
like($tool_err, qr/has not stopped yet, and waits for PID $backend, "postgres: main: \S+ postgres \[local\] idle"/, '... and it is named');
$json = JSON::PP::decode_json($out);
like("@{$json->{warnings}}", qr/waits for PID $backend/, '... in JSON as well');
cmp_ok($json->{phases}{sessions}, '>', 1000, '... and the sessions took most of the stop');
my $parts = 0;
$parts += $json->{phases}{$_} for qw(sessions shutdown_checkpoint exit launch answer);
cmp_ok(abs($parts - $json->{outage}), '<', 1, '... and the parts of stop and start are the outage');
eval { $session->quit };
$node->_update_pid(1);

# --------------------------------------------------------- a command that fails when the stop has begun
$session = $node->background_psql('postgres');
$session->query_safe('SELECT 1');
($rc, $out, $err) = pcache($node, 'restart',
	"--command=$bin/pg_ctl -D $data -m smart --no-wait stop >/dev/null; until grep -q '^stopping' $data/postmaster.pid; do sleep 0.1; done; exit 7");
is($rc, 3, 'a command that fails when it has told the server to stop: it will not be there');
like($err, qr/command .* failed.*The server is stopping nevertheless\./s, '... which is said');
eval { $session->quit };
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if !-e "$data/postmaster.pid";
	select undef, undef, undef, 0.1;
}
ok(!-e "$data/postmaster.pid", '... and so it is');
$node->_update_pid(0);

# --------------------------------------------------------- what would be started
# The configuration is elsewhere, and was named relative to where the server was started.
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
rename "$data/postgresql.conf", "$elsewhere/main.conf" or die $!;
append_to_file("$elsewhere/main.conf", "hba_file = '$data/pg_hba.conf'\nident_file = '$data/pg_ident.conf'\ninclude_if_exists = '$elsewhere/more.conf'\n");

# start_there(ARGUMENTS): from that directory, as pg_ctl does it
sub start_there
{
	my (@arguments) = @_;

	system_or_bail('sh', '-c', 'cd "$1" && shift && exec "$@"', 'sh', $elsewhere, "$bin/pg_ctl", '-D', $data, '-l', $node->logfile, '-w', '-o', "@arguments", 'start');
	$node->_update_pid(1);
	return;
}
start_there('-c', 'config_file=main.conf');
my $pid = server_pid();
($rc, $out, $err) = pcache($node, 'restart');
is($rc, 1, 'a configuration that was named relative to another directory: refused');
is(server_pid(), $pid, '... and the server goes on');
($rc, $out, $err) = pcache($node, 'restart', "--config-file=$elsewhere/main.conf");
is($rc, 0, '... and with --config-file it is restarted') or diag($err);
isnt(server_pid(), $pid, '... and is another server');
is($node->safe_psql('postgres', 'SHOW config_file'), "$elsewhere/main.conf", '... with that file');
$node->_update_pid(1);

$node->stop;
start_there("--config-file=$elsewhere/main.conf");
$pid = server_pid();
append_to_file("$elsewhere/more.conf", "data_directory = '/nonexistent'\n");
($rc, $out, $err) = pcache($node, 'restart', "--config-file=$elsewhere/main.conf");
is($rc, 1, 'a configuration that leads elsewhere: refused');
is(server_pid(), $pid, '... and the server goes on');
unlink "$elsewhere/more.conf";
($rc, $out, $err) = pcache($node, 'restart');
is($rc, 0, '... and without that it is restarted') or diag($err);
$node->_update_pid(1);
$node->stop;

# So was the file that says who may connect.
system_or_bail('cp', "$data/pg_hba.conf", "$elsewhere/hba.conf");
start_there("--config-file=$elsewhere/main.conf", '--hba_file=hba.conf');
$pid = server_pid();
($rc, $out, $err) = pcache($node, 'restart');
is($rc, 1, 'a hba_file that was named relative to another directory: refused');
like($err, qr/would not find its "hba_file"/, '... for that reason');
is(server_pid(), $pid, '... and the server goes on');
$node->_update_pid(server_pid() != 0);
$node->stop;

# --------------------------------------------------------- a container
# As the first process of a namespace, a shell that starts the server in some way, restarts it,
# and tells how that has ended.  There is no root there whom the pool could trust, so no start is
# warm.
sub in_container
{
	my ($first, $way) = @_;
	my $run = IPC::Run::run([ 'unshare', '--user', '--map-current-user', '--pid', '--fork', '--kill-child', '--mount-proc', $first, '-c', <<'SH', 'sh', $way, $bin, $data, $node->logfile, "$elsewhere/main.conf" ], '<' => \undef, '>' => \$out, '2>' => \$err);
case $1 in
foreground) "$2/postgres" -D "$3" -c config_file="$5" >>"$4" 2>&1 & ;;
session) setsid "$2/postgres" -D "$3" -c config_file="$5" >>"$4" 2>&1 & ;;
pg_ctl) sleep 1000 & "$2/pg_ctl" -D "$3" -l "$4" -o "-c config_file=$5" start >/dev/null 2>&1 ;;
esac
until "$2/pg_ctl" -D "$3" status >/dev/null && grep -q '^ready' "$3/postmaster.pid"; do sleep 0.1; done
pg_pcache -D "$3" restart --allow-cold
echo "exit status: $?"
"$2/pg_ctl" -D "$3" -m fast stop >/dev/null
SH
	return;
}

SKIP:
{
	skip 'there can be no namespaces here', 6
	  if !IPC::Run::run([ 'unshare', '--user', '--map-current-user', '--pid', '--fork', '--mount-proc', 'true' ], '<' => \undef, '>&' => \$out);
	my $init = PostgreSQL::Test::Utils::tempdir() . '/dumb-init';

	in_container('/bin/sh', 'foreground');
	like($out, qr/^exit status: 1$/m, 'a shell that waits for the server: refused');
	like($err, qr/cannot be restarted by pg_pcache itself: a process that has started it waits for its end/, '... for that reason');
	in_container('/bin/sh', 'pg_ctl');
	like($out, qr/^exit status: 2$/m, 'a server that pg_ctl has started there: restarted') or diag($err);
	system_or_bail('cp', '/bin/sh', $init);
	in_container($init, 'session');
	like($out, qr/^exit status: 1$/m, 'an init that gives the server a session of its own: refused');
	like($err, qr/a process that has started it waits for its end/, '... for that reason');
	in_container($init, 'pg_ctl');
	like($out, qr/^exit status: 2$/m, 'a server that it does not wait for: restarted') or diag($err);
}

done_testing();
