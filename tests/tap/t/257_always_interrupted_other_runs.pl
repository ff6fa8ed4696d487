
# Copyright (c) 2026, the persistent-cache developers

# Mode always: after a crash another server begins to recover the cluster, and
# dies in the middle of redo.  Its redo has put old images of pages into files
# for which the pool has newer pages, which were clean.  They must not stay
# clean.

use strict;
use warnings FATAL => 'all';

use Digest::MD5 qw(md5_hex);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $vanilla = vanilla_install();
my $without = qr/^the cluster was run without the pool$/;
my $foreign = qr/^the control file is not what the pool's server last wrote$/;

my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1 },
	conf => "wal_keep_size = 480MB\nsynchronous_commit = on\nmax_wal_size = 2GB");

$primary->start;
# even ids, so that there is room between them in each page of the index
$primary->safe_psql('postgres', q{
CREATE TABLE t (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 40);
INSERT INTO t SELECT 2 * i, 0, repeat('x', 200) FROM generate_series(1, 5000) i;
CREATE TABLE other (id int, filler text) WITH (fillfactor = 40);
INSERT INTO other SELECT i, repeat('y', 200) FROM generate_series(1, 2000) i;
CREATE TABLE victim (id int);
INSERT INTO victim VALUES (0);
VACUUM t, other, victim;
});
$primary->backup('b');

sub make_standby
{
	my ($name) = @_;

	my $node = new_standby($name, $primary, 'b', mode => 'always', directory => pool_root() . "/$name");
	$node->start;
	return $node;
}

my $round = 0;

# After a checkpoint, a change of each page, with its image in WAL; a record
# that can be made to fail; and more changes of the same pages.  The standby
# has all of it on disk, but its redo point is still that of the checkpoint.
sub prepare
{
	my ($node) = @_;
	my $last = 10 * $round + 1;

	$round++;
	$primary->start if !defined $primary->{_pid};
	$primary->wait_for_replay_catchup($node);
	$primary->safe_psql('postgres', $_)
	  for 'CHECKPOINT',
	  "INSERT INTO t SELECT i + $last, $round, '' FROM generate_series(20000, 30000, 50) i ON CONFLICT DO NOTHING",
	  "INSERT INTO t SELECT i + $last, $round, '' FROM generate_series(0, 9000, 50) i ON CONFLICT DO NOTHING",
	  'UPDATE t SET v = v + 1 WHERE id % 10 = 0',
	  'UPDATE other SET id = id + 1 WHERE id % 3 = 0',
	  "INSERT INTO victim VALUES ($round)",
	  'UPDATE t SET v = v + 1 WHERE id % 10 = 4',
	  "INSERT INTO t SELECT i + $last + 2, $round, '' FROM generate_series(0, 9000, 20) i ON CONFLICT DO NOTHING",
	  'UPDATE other SET id = id + 1 WHERE id % 3 = 1';
	$primary->wait_for_replay_catchup($node);
	wait_for_seals();
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', 'SELECT count(*) FROM t');
	wait_for_seals();
	return contents($primary);
}

sub digest { return md5_hex(slurp_file($_[0])) }

# Rows, and what each way to read them says.
sub contents
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SELECT count(*), sum(id), sum(v), sum(length(filler)) FROM t;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
SELECT count(*), sum(id), sum(v) FROM t WHERE id > -1;
SELECT count(*) FROM (SELECT id FROM t GROUP BY id HAVING count(*) > 1) d;
SET enable_seqscan = on;
SELECT count(*), sum(id) FROM other; SELECT count(*), sum(id) FROM victim});
}

# Have another server recover the cluster until it comes to the table that it
# cannot open, with so few buffers that it has to write what it has changed.
sub die_in_redo
{
	my ($node, $run, $name) = @_;
	my $data = $node->data_dir;
	my $victim = "$data/" . $primary->{victim};
	my $file = "$data/" . $primary->{table};
	my $before = digest($file);

	set_mode($node, undef);
	$node->adjust_conf('postgresql.conf', 'shared_buffers', '128kB');
	$node->append_conf('postgresql.conf', 'recovery_prefetch = off');
	chmod 0, $victim or die $!;
	like($run->($node, $name), qr/FATAL:  could not \w+ file "$primary->{victim}"/, "$name: it dies in redo");
	chmod 0600, $victim or die $!;
	$node->adjust_conf('postgresql.conf', 'recovery_prefetch', undef);
	$node->adjust_conf('postgresql.conf', 'shared_buffers', '32MB');
	set_mode($node, 'always');
	isnt(digest($file), $before, "$name: it has written to the file");
	return;
}

($primary->{table}, $primary->{victim}) = split /\n/, $primary->safe_psql('postgres',
	q{SELECT pg_relation_filepath('t'); SELECT pg_relation_filepath('victim')});

sub server { return start_and_fail(@_) }

sub stock_server
{
	my ($node, $name) = @_;
	return with_install($node, $vanilla, sub { start_and_fail($node, $name) });
}

sub single
{
	my ($node, $name, $bin) = @_;
	my $signal = $node->data_dir . '/standby.signal';
	my $is_standby = -e $signal;

	# it refuses to be a standby
	unlink $signal if $is_standby;
	run_log([ defined $bin ? "$bin/bin/postgres" : 'postgres', '--single', '-D' => $node->data_dir, 'postgres' ],
		'<' => \"SELECT 1\n", '>' => \my $out, '2>' => \my $err);
	isnt($?, 0, "$name: it fails");
	append_to_file($signal, '') if $is_standby;
	return $out . $err;
}

sub stock_single { return single(@_, $vanilla) }

my @runs = (
	[ 'mode off', \&server, 'incarnation', $without ],
	[ 'single-user', \&single, 'incarnation', $without ],
	[ 'unpatched server', \&stock_server, 'control_file', $foreign ],
	[ 'unpatched single-user', \&stock_single, 'control_file', $foreign ]);

@runs = grep { $_->[0] !~ /unpatched/ } @runs if !defined $vanilla;

# What is in the files when nobody needs old WAL any more.
sub files_right
{
	my ($node, $expected, $name) = @_;

	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->stop;
	set_mode($node, 'off');
	$node->start;
	is(contents($node), $expected, "$name: contents of the files are right");
	if ($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f')
	{
		is( $node->safe_psql('postgres',
				'WITH i AS (INSERT INTO t SELECT id, -1 FROM t ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM i'),
			0, "$name: no key is accepted twice");
	}
	$node->stop;
	set_mode($node, 'always');
	return;
}

# --- a standby
my $standby = make_standby('standby');

for my $case (@runs, [ 'unpatched server, pg_control as it was', \&stock_server, undef, undef ])
{
	my ($name, $run, $reason, $message) = ("standby, $case->[0]", @$case[1 .. 3]);
	my $expected = prepare($standby);
	my $control = $standby->data_dir . '/global/pg_control';
	my $saved;

	kill_all($standby);
	$primary->stop;
	is(verify_json($standby)->{rc}, 0, "$name: it would have been warm");
	$saved = slurp_file($control);
	die_in_redo($standby, $run, $name);
	if (defined $reason)
	{
		cold_after_crash($standby, $reason, $message, $name);
	}
	else
	{
		# as if nothing had told: then the redo point alone has to do
		write_bytes($control, 0, $saved);
		warm_after_crash($standby, 1, $name);
	}
	is(contents($standby), $expected, "$name: contents are right");

	# the redo point moves on
	$primary->start;
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($standby);
	files_right($standby, $expected, $name);
	$standby->start;
}

# --- a standby that was stopped cleanly, with a run that pg_control does not
# show because it took less than a second
SKIP:
{
	skip 'PCACHE_VANILLA does not name an unpatched installation', 1
	  if !defined $vanilla;
	my $name = 'standby, clean stop, unpatched server within a second';
	my $expected = prepare($standby);
	my $control = $standby->data_dir . '/global/pg_control';
	my $file = $standby->data_dir . "/$primary->{table}";
	my ($saved, $now, $before);

	$standby->stop;
	$primary->stop;
	$saved = slurp_file($control);
	$before = digest($file);
	set_mode($standby, undef);
	$standby->adjust_conf('postgresql.conf', 'shared_buffers', '128kB');
	with_install($standby, $vanilla, sub { $standby->start; $standby->stop });
	$standby->adjust_conf('postgresql.conf', 'shared_buffers', '32MB');
	set_mode($standby, 'always');
	isnt(digest($file), $before, "$name: it has written to the file");
	$now = slurp_file($control);
	# time; CRC, the last field before the padding
	substr($_, 24, 8, "\0" x 8) for $now, my $then = $saved;
	substr($_, length(($then =~ s/\0+\z//r)) - 4, 4, '') for $now, $then;
	is(unpack('H*', $now =~ s/\0+\z//r), unpack('H*', $then =~ s/\0+\z//r),
		"$name: pg_control differs in time and checksum only");
	write_bytes($control, 0, $saved);
	is(verify_json($standby)->{rc}, 0, "$name: pg_pcache verify says warm");
	$standby->start;
	is(contents($standby), $expected, "$name: contents are right");
	$primary->start;
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($standby);
	files_right($standby, $expected, $name);
}

# --- a primary that was a standby when it made its last checkpoint
for my $case (@runs)
{
	my ($name, $run, $reason, $message) = ("promoted, $case->[0]", @$case[1 .. 3]);
	my $node = make_standby("promoted$round");
	my $expected = prepare($node);

	# the checkpoint after the promotion has to write, and takes its time
	$primary->safe_psql('postgres', 'UPDATE other SET id = id + 1');
	$primary->wait_for_replay_catchup($node);
	$expected = contents($primary);
	$node->append_conf('postgresql.conf', 'checkpoint_timeout = 1d');
	$node->reload;
	$node->safe_psql('postgres', 'SELECT pg_promote()');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	wait_for_seals();
	kill_all($node);
	is(verify_json($node)->{rc}, 0, "$name: it would have been warm");
	die_in_redo($node, $run, $name);
	cold_after_crash($node, $reason, $message, $name);
	is(contents($node), $expected, "$name: contents are right");
	files_right($node, $expected, $name);
}

# --- pg_rewind, which recovers the cluster in single-user mode first
for my $case ([ 'pg_rewind', '', 'incarnation', $without ],
	[ 'unpatched pg_rewind', defined $vanilla ? "$vanilla/bin/" : undef, 'checkpoint', qr/^the pool knows of checkpoints / ])
{
	my ($name, $bin, $reason, $message) = @$case;
	my ($node, $expected, $conf);

	next if !defined $bin;
	$node = make_standby("rewound$round");
	prepare($node);
	$conf = slurp_file($node->data_dir . '/postgresql.conf');
	$node->promote;
	$node->safe_psql('postgres', 'UPDATE t SET v = -1 WHERE id % 3 = 0; DELETE FROM other WHERE id % 5 = 0');
	$primary->safe_psql('postgres', 'UPDATE t SET v = v + 5 WHERE id % 7 = 0; CHECKPOINT');
	$expected = contents($primary);
	wait_for_seals();
	kill_all($node);
	is(verify_json($node)->{rc}, 0, "$name: it would have been warm");
	my $record = slurp_file(state_file($node));
	set_mode($node, undef) if $bin ne '';
	command_ok([ "${bin}pg_rewind", '--no-sync', '--source-server' => $primary->connstr('postgres'),
			'--target-pgdata' => $node->data_dir ], "$name: run");
	if ($bin ne '')
	{
		# it has removed what only the target has; as if it had not
		append_to_file(state_file($node), $record);
	}
	unlink $node->data_dir . '/postgresql.conf';
	append_to_file($node->data_dir . '/postgresql.conf', $conf);
	chmod 0600, $node->data_dir . '/postgresql.conf';
	$node->enable_streaming($primary);
	$node->set_standby_mode;
	cold_after_crash($node, $reason, $message, $name);
	$primary->wait_for_replay_catchup($node);
	is(contents($node), $expected, "$name: contents of the other primary");
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($node);
	files_right($node, $expected, $name);
}
$primary->stop;
done_testing();
