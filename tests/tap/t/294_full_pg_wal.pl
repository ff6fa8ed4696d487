
# Copyright (c) 2026, the persistent-cache developers

# pg_wal was full, which is a PANIC, and the administrator has made some room.  The next
# start is cold, as pg_pcache foretells, and gets as far in that room as a server without
# the cache, which a copy of the cluster tells.  The one after it is warm.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($shim) = grep { -e } map { "$_/wal_room.so" } (run_command([ 'pg_config', '--pkglibdir' ]))[0], "$ENV{PCACHE_ROOT}/build/modules/wal_room";
plan skip_all => 'the test module wal_room is not built' if !defined $shim;
use constant MB => 1024 * 1024;

my $node = new_node('main', mode => 'always', init => { extra => ['--wal-segsize=1'] },
	conf => "wal_level = replica\nwal_compression = off\nrestart_after_crash = off\nlog_statement = none\n");
my ($expected, $offset, $outcome, $verdict, $done, $copy);

sub room { return $_[0]->basedir . '/room' }

# The shim is of use only to a server, and pg_ctl passes it on.
sub start
{
	my ($server) = @_;
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{WAL_ROOM_FILE} = room($server);

	$server->start;
	return;
}

# pg_wal has room for so many MB beside what is there.
sub give_room
{
	my ($server, $mb) = @_;
	my $bytes = $mb * MB;
	my $room = room($server);

	$bytes += -s $_ for glob $server->data_dir . '/pg_wal/[0-9A-F]*';
	# the server may be reading it
	unlink "$room.new";
	append_to_file("$room.new", $bytes);
	rename "$room.new", $room or die $!;
	return;
}

# Transactions with about 1 MB of WAL each; returns how many get through.
sub work
{
	my ($server, $n) = @_;

	for my $i (1 .. $n)
	{
		my $rc = eval { $server->psql('postgres', q{INSERT INTO filling SELECT i, repeat('x', 1000) FROM generate_series(1, 900) i}) };

		return $i - 1 if !defined $rc || $rc != 0;
	}
	return $n;
}

sub wait_for_end
{
	my ($server) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $server->_update_pid(-1) if !-e $server->data_dir . '/postmaster.pid';
		select undef, undef, undef, 0.1;
	}
	die 'the server does not end';
}

start($node);
load_data($node, rows => 5000);
$node->safe_psql('postgres', 'CREATE TABLE filling (i int, filler text)');
$expected = checksums($node, tables => [LOGGED]);
warm_up($node);
$node->safe_psql('postgres', 'CHECKPOINT');

$offset = log_offset($node);
give_room($node, 40);
cmp_ok(work($node, 80), '<', 80, 'pg_wal gets full');
wait_for_end($node);
like(slurp_file($node->logfile, $offset), qr/PANIC:  could not (?:create|write to) file "pg_wal\/[^"]*": No space left on device/, 'the server ends for that reason');

$node->backup_fs_cold('copy');
$copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->append_conf('postgresql.conf', "primary_conninfo = ''\npcache.mode = off");
give_room($copy, 20);
start($copy);
$done = work($copy, 24);
if (-e $copy->data_dir . '/postmaster.pid' && query_broken_server($copy, 'SELECT 1') == 0) { $copy->stop('immediate') }
else { wait_for_end($copy) }
$copy->clean_node;

$verdict = verify_json($node);
is($verdict->{rc}, 2, 'pg_pcache verify says cold');
$offset = log_offset($node);
give_room($node, 20);
start($node);
$outcome = start_outcome($node, $offset);
is($outcome->{start}, 'cold', 'cold');
is($outcome->{reason}, $verdict->{detail}, 'for the reason that was foretold');
like($outcome->{reason}, qr/may have overwritten cached pages before|PANIC/, 'which is the PANIC');
is(work($node, 24), $done, "$done of 24 transactions get through, as without the cache");
if ($done < 24)
{
	wait_for_end($node);
	unlink room($node);
	start($node);
}
unlink room($node);
is(checksums($node, tables => [LOGGED]), $expected, 'contents are right');
$node->safe_psql('postgres', 'TRUNCATE filling; CHECKPOINT');
$node->stop;
start($node);
restart_warm($node, 'restarted');
$node->stop;

done_testing();
