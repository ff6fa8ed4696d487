# Copyright (c) 2026, the persistent-cache developers

# A source that does not work costs the standby nothing but the list: it says
# why, keeps what it has, and goes on once the reason is gone.  No password is
# told.  Damaged files are refused.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary');
my $stranger = new_primary('stranger', init => { force_initdb => 1 });

add_table($primary, 'hot', 100);
$primary->safe_psql('postgres', <<'EOF');
SET password_encryption = 'scram-sha-256';
CREATE ROLE reader LOGIN PASSWORD 'correct horse';
CREATE ROLE banned LOGIN;
EOF
# Base backups have a pg_hba.conf of their own, so this one is the primary's only.
my $hba = slurp_file($primary->data_dir . '/pg_hba.conf');
my $standby = new_standby('standby', $primary, conf => "pg_hotset.source = 'no connection string, password=hunter2'\n");
write_hba($primary, <<EOF . $hba);
local all banned reject
host all banned all reject
local all reader scram-sha-256
host all reader all scram-sha-256
EOF
$primary->reload;
$standby->start;

sub write_hba
{
	my ($node, $contents) = @_;

	unlink $node->data_dir . '/pg_hba.conf' or die $!;
	append_to_file($node->data_dir . '/pg_hba.conf', $contents);
}

my $at_primary = "host=" . $primary->host . " port=" . $primary->port;

# Set a source, and see what becomes of it.
sub try_source
{
	my ($source, $problem, $name) = @_;

	$source =~ s/'/''/g;
	$standby->append_conf('postgresql.conf', "pg_hotset.source = '$source'\n");
	$standby->reload;
	wait_until($standby, $problem, $name);
}

wait_until($standby, "problem = 'pg_hotset.source is no connection string'", 'no connection string');
try_source("$at_primary user=reader password=hunter2", "problem LIKE '%password authentication failed%'", 'wrong password');
try_source("$at_primary user=reader", "problem LIKE '%no password supplied%'", 'no password');
try_source("$at_primary user=banned", "problem LIKE '%pg_hba.conf has to let the role connect to a database%'",
	'pg_hba.conf does not let it in');
try_source("$at_primary user=nobody_there", "problem LIKE '%does not exist%'", 'no such role');
try_source("$at_primary dbname=template1", "problem LIKE 'the extension pg_hotset is not in database \"template1\" there%'",
	'no extension there');
try_source("$at_primary dbname=nowhere", "problem LIKE '%database \"nowhere\" does not exist%'", 'no such database');
try_source('host=' . $stranger->host . ' port=' . $stranger->port,
	"problem = 'the list is from another cluster'", 'another cluster');
ok(!-e $standby->data_dir . '/pg_hotset.list', 'its list was not kept');
try_source("$at_primary user=reader password='correct horse'",
	"problem LIKE '%permission denied for function pg_hotset%'", 'no permission');

my ($rc, $out, $err) = $standby->psql('postgres', 'SELECT pg_hotset()');
like($err, qr/this standby has no list of its primary/, 'a standby without a list says so');

# It goes on once the reason is gone, with EXECUTE and nothing else.
$primary->safe_psql('postgres', "GRANT EXECUTE ON FUNCTION pg_hotset() TO reader; SELECT pg_prewarm('hot')");
wait_until($standby, 'problem IS NULL AND lists > 0', 'EXECUTE is all that is needed');
is_warm($standby, $primary, 'EXECUTE', 'hot');
like(slurp_file($standby->logfile), qr/pg_hotset gets lists again/, 'the log says that it goes on');

# The extension may be in any schema, and the role's search_path does not matter.
$primary->safe_psql('postgres', <<'EOF');
CREATE SCHEMA "Else where";
ALTER EXTENSION pg_hotset SET SCHEMA "Else where";
GRANT USAGE ON SCHEMA "Else where" TO reader;
-- for this test itself
ALTER ROLE CURRENT_USER SET search_path = public, "Else where";
EOF
$primary->wait_for_replay_catchup($standby);
my $lists = stat_of($standby, 'lists');
wait_until($standby, "problem IS NULL AND lists > $lists + 1", 'the extension is in another schema');
$primary->safe_psql('postgres', 'ALTER EXTENSION pg_hotset SET SCHEMA public');
$primary->wait_for_replay_catchup($standby);

# somebody who listens, and does not answer
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 20) or die $!;
$standby->append_conf('postgresql.conf', "pg_hotset.timeout = 1s\n");
try_source('host=127.0.0.1 port=' . $listener->sockport, "problem = 'there was no answer for 1 s'", 'a server that does not answer');
my $rounds = stat_of($standby, 'compared');
wait_until($standby, "compared > '$rounds'", '... does not keep the last list from being used');
close $listener;
wait_until($standby, "problem LIKE '%refused%'", 'nobody listens');

# Nothing of the passwords is told, except by PostgreSQL itself, of any setting.
my $log = slurp_file($standby->logfile);
$log =~ s/LOG:  parameter "pg_hotset.source" changed to .*//g;
unlike($log, qr/hunter2|correct horse/, 'no password is in the log');
$primary->safe_psql('postgres', 'CREATE ROLE somebody LOGIN');
$primary->wait_for_replay_catchup($standby);
($rc, $out, $err) = $standby->psql('postgres', 'SHOW pg_hotset.source', connstr => $standby->connstr('postgres') . ' user=somebody');
like($err, qr/permission denied to examine "pg_hotset.source"/, 'only some may see the source');

# Killed primary, killed standby: neither hurts the other or its list.
$standby->append_conf('postgresql.conf', "pg_hotset.max_rate = 1\n");
try_source("$at_primary", 'problem IS NULL', 'the primary answers');
$primary->kill9;
wait_until($standby, 'problem IS NOT NULL', 'the primary is dead');
$standby->kill9;
start_killed($standby);
wait_until($standby, "list_from = 'pg_hotset.list'", 'a killed standby uses its file');
wait_until($standby, 'percent_warm > 99', '... and is warm');
start_killed($primary);
wait_until($standby, "problem IS NULL OR problem LIKE '%just started%'", 'the primary is back');

# damaged files: each byte of the header and of the end, and lengths
my $file = $standby->data_dir . '/pg_hotset.list';
my $list = slurp_file($file);
my $wrong = 0;
my $session = $standby->background_psql('postgres', on_error_stop => 0);
$standby->append_conf('postgresql.conf', "pg_hotset.interval = 0\n");
$standby->reload;
wait_until($standby, "state = 'off'", 'interval 0 turns it off');
foreach my $n (0 .. 80, length($list) - 20 .. length($list) - 1)
{
	my $damaged = $list;

	substr($damaged, $n, 1) = chr(ord(substr($damaged, $n, 1)) ^ 0x41);
	write_file($file, $damaged);
	$session->query("SELECT * FROM pg_hotset_load('pg_hotset.list')");
	$wrong++ if $session->{stderr} !~ /could not use file/;
	$session->{stderr} = '';
}
is($wrong, 0, 'each damaged byte is noticed');
$session->quit;

sub write_file
{
	my ($name, $contents) = @_;

	open(my $fh, '>:raw', $name) or die "$name: $!";
	print $fh $contents;
	close $fh or die $!;
}

$standby->append_conf('postgresql.conf', "pg_hotset.interval = 1s\npg_hotset.source = 'host=/nowhere'\n");
foreach my $case ([ 'empty', '' ], [ 'cut', substr($list, 0, 1000) ], [ 'longer', $list . "\0" ], [ 'damaged', $list ^ ("\0" x 90 . "\1") ])
{
	my ($name, $contents) = @$case;
	my $offset;

	$standby->stop;
	write_file($file, $contents);
	$offset = -s $standby->logfile;
	$standby->start;
	$standby->wait_for_log(qr/pg_hotset does not use file "pg_hotset.list"/, $offset);
	is(stat_of($standby, 'received IS NULL'), 't', "a file that is $name is not used");
}

# A link or a directory in its place costs the file, not the server.
$standby->stop;
unlink $file or die $!;
mkdir $file or die $!;
$standby->append_conf('postgresql.conf', "pg_hotset.source = ''\n");
$standby->start;
wait_until($standby, 'lists > 0', 'a directory in its place does not keep the list from being used');
rmdir $file or die $!;
$standby->stop;
$primary->stop;
done_testing();
