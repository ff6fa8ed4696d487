
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache restart: whom a stop waits for.

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

done_testing();
