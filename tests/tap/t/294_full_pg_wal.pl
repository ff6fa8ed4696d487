
# Copyright (c) 2026, the persistent-cache developers

# pg_wal was full, which is a PANIC, and the administrator has made some room.  A
# start with kept pages allows connections before the checkpoint at the end of
# recovery, unless WAL would then fill that room up before the checkpoint sets any
# free.  A stock server on a copy tells how far it has to get.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $stock = vanilla_install();
plan skip_all => 'PCACHE_VANILLA does not name an unpatched installation' if !defined $stock;

my $shim = (run_command([ 'pg_config', '--pkglibdir' ]))[0] . '/wal_room.so';
plan skip_all => 'the test module wal_room is not installed' if !-e $shim;

use constant MB => 1024 * 1024;

my $early = qr/connections are allowed before the checkpoint at the end of recovery/;
my $late = qr/connections are allowed after the checkpoint at the end of recovery, because/;
my $full = qr/PANIC:  could not (?:create|write to) file "pg_wal\/[^"]*": No space left on device/;
my $node = new_node('main', mode => 'always', init => { extra => ['--wal-segsize=1'] },
	conf => "wal_level = replica\nwal_compression = off\nrestart_after_crash = off\nlog_checkpoints = on\nlog_statement = none");
my $copies = 0;
my ($expected, $offset, $copy);

start($node);
load_data($node, rows => 1000);
$node->safe_psql('postgres', 'CREATE TABLE filling (i int, filler text) WITH (autovacuum_enabled = off)');
$expected = checksums($node, tables => [LOGGED]);

# 40 MB are full, and 20 MB are made: all that is there is since the checkpoint.
full_of_wal('no room', 40, 20, '1GB', qr/$late "pg_wal" is short of room\n.*DETAIL:  \d+ kB are needed, and its file system has \d+ kB free\./);

# There is room, and yet a stock server would have begun a checkpoint by itself.
full_of_wal('max_wal_size', 40, 200, '20MB', qr/$late WAL has reached "max_wal_size"\n/);

# There is room for all that is needed, but not for max_wal_size.
full_of_wal('little room', 20, 60, '1GB', qr/$early\n.*checkpoint starting: immediate/s);

# More than half of max_wal_size waits for the checkpoint.
full_of_wal('much WAL', 20, 300, '35MB', qr/$early\n.*checkpoint starting: immediate/s);

# Otherwise it takes its time.
full_of_wal('much room', 20, 300, '200MB', qr/$early\n(?!.*checkpoint starting: immediate)/s);

# A slot holds all WAL.  No checkpoint sets anything free then, so neither server
# gets through.
$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('holds', true)});
full_of_wal('a slot', 40, 20, '1GB', qr/kept [1-9]\d* of/);
unlink room($node);
start($node);
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('holds')});

# The server begins again by itself, without any room.  It fares as a stock one.
prepare();
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->stop;
$copy = copy_of($node);
my @ends;
for my $case ([ $copy, $stock ], [ $node, $node->{_install_path} ])
{
	my ($server, $install) = @$case;

	with_install($server, $install, sub {
		start($server);
		give_room($server, 10);
		cmp_ok(work($server, 30), '<', 30, 'restart_after_crash: ' . $server->name . ': pg_wal gets full');
		push @ends, end_of($server);
	});
}
is($ends[1], $ends[0], "restart_after_crash: the server $ends[0], as a stock one");
done_testing();

# The shim is of use only to a server, and pg_ctl passes it on.
sub start
{
	my ($server) = @_;

	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{WAL_ROOM_FILE} = room($server);
	$server->start;
	return;
}

sub room { return $_[0]->basedir . '/room' }

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

# Right after a checkpoint, with one segment in pg_wal: those behind it are recycled ones.
sub prepare
{
	my $redo;

	$node->safe_psql('postgres', 'TRUNCATE filling');
	$node->stop;
	($redo) = (run_command([ 'pg_controldata', $node->data_dir ]))[0] =~ /REDO WAL file:\s+(\S+)/ or die;
	unlink grep { m{/([0-9A-F]{24})$} && $1 ne $redo } glob $node->data_dir . '/pg_wal/*';
	unlink room($node);
	$node->append_conf('postgresql.conf', 'max_wal_size = 1GB');
	start($node);
	warm_up($node);
	wait_for_seals(0.3);
	return;
}

# "ends", or "works" again.
sub end_of
{
	my ($server) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (!-e $server->data_dir . '/postmaster.pid')
		{
			$server->_update_pid(-1);
			return 'ends';
		}
		return 'works' if query_broken_server($server, 'SELECT 1') == 0;
		select undef, undef, undef, 0.1;
	}
	die 'the server neither ends nor works';
}

# The crashed cluster, without its pool.
sub copy_of
{
	my ($server) = @_;
	my $name = 'copy' . ++$copies;

	$server->backup_fs_cold($name);
	my $new = PostgreSQL::Test::Cluster->new($name);
	$new->init_from_backup($server, $name);
	$new->append_conf('postgresql.conf', "primary_conninfo = ''");
	$new->adjust_conf('postgresql.conf', $_, undef) for qw(persistent_cache_mode persistent_cache_required);
	unlink state_file($new);
	return $new;
}

# Fill pg_wal up with so many MB, have that PANIC, and make so many MB of room.
# Then, with this max_wal_size, the server has to get through as many transactions
# as the stock one, and its log has to say how.
sub full_of_wal
{
	my ($name, $fills, $makes, $max_wal_size, $log) = @_;
	my $done;

	prepare();
	$offset = log_offset($node);
	give_room($node, $fills);
	cmp_ok(work($node, 2 * $fills), '<', 2 * $fills, "$name: pg_wal gets full");
	is(end_of($node), 'ends', "$name: the server ends");
	like(slurp_file($node->logfile, $offset), $full, "$name: for that reason");

	$node->append_conf('postgresql.conf', "max_wal_size = $max_wal_size");
	$copy = copy_of($node);
	with_install($copy, $stock, sub {
		give_room($copy, $makes);
		start($copy);
		$done = work($copy, 24);
		$copy->stop('immediate') if end_of($copy) eq 'works';
		$copy->clean_node;
	});

	$offset = log_offset($node);
	give_room($node, $makes);
	start($node);
	is(work($node, 24), $done, "$name: $done of 24 transactions get through, as with a stock server");
	like(slurp_file($node->logfile, $offset), $log, "$name: the log says when the checkpoint comes");
	is(checksums($node, tables => [LOGGED]), $expected, "$name: contents are right") if end_of($node) eq 'works';
	return;
}
