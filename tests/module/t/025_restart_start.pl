
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache restart: whom a stop waits for, and what would be started.

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
$node->stop;

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

done_testing();
