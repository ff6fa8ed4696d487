
# Copyright (c) 2026, the persistent-cache developers

# What tells, after a crash in mode always, that somebody else had the cluster:
# PGDATA's record, and what the pool says of pg_control.  Starts that are cut
# off; damage to either; and what pg_pcache makes of it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $vanilla = vanilla_install();
my $without = qr/^the cluster was run without the pool$/;
my $foreign = qr/^the control file is not what the pool's server last wrote$/;
my $node = new_node('main', mode => 'always', size => '48MB');
my $pool = pool_file($node);
my $data = $node->data_dir;
my $record = state_file($node);
my ($expected, $valid, $offset, $before, $log, @half);

# The two halves: number, hash of contents, checkpoint, epoch, time, reserved, CRC of pg_control.
sub read_halves
{
	return map { [ unpack 'Q4qa16L', read_bytes($pool, CONTROL_OFFSET + 64 * $_, 60) ] } 0, 1;
}

sub write_half
{
	my ($which, @values) = @_;
	my $bytes = pack 'Q4qa16L', @values;

	write_bytes($pool, CONTROL_OFFSET + 64 * $which, $bytes . pack('L', crc32c($bytes)));
	return;
}

$node->start;
load_data($node);

# --- without the pool nothing happens unless there is a record of one
{
	my $bare = new_node('bare', mode => undef);

	$bare->start;
	$bare->stop;
	ok(!-e state_file($bare), 'no record of a pool: none is made');
	unlike(slurp_file($bare->logfile), qr/persistent cache/i, 'no record of a pool: no word of it');
}

# --- the line follows pg_control
$node->safe_psql('postgres', 'CHECKPOINT');
@half = read_halves();
is($half[0][0], $half[1][0], 'checkpoint: the update is confirmed');
is($half[0][1], $half[1][1], 'checkpoint: with the contents that were pending');
$before = $half[1][0];
$node->safe_psql('postgres', 'CHECKPOINT');
@half = read_halves();
cmp_ok($half[1][0], '>', $before, 'another checkpoint: another update');
is($half[1][6], unpack('L', read_bytes("$data/global/pg_control", control_crc_offset(), 4)),
	'another checkpoint: the CRC is that of pg_control');
is($half[1][4], unpack('q', read_bytes("$data/global/pg_control", 24, 8)),
	'another checkpoint: and the time');
is_deeply([ map { $_->{warm} } query_next_start() ], ['t'], 'next start: warm');

# pg_control's CRC is the last of its fields that are not zero.
sub control_crc_offset
{
	my $bytes = slurp_file("$data/global/pg_control");

	for (my $offset = 200; $offset < 512; $offset += 4)
	{
		return $offset
		  if unpack('L', substr $bytes, $offset, 4) == crc32c(substr $bytes, 0, $offset);
	}
	die 'no CRC in pg_control';
}

sub query_next_start
{
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_pcache');
	return { warm => $node->safe_psql('postgres', 'SELECT warm FROM pg_pcache_next_start($$crash$$)') };
}

# --- a start that dies before it changes anything leaves no trace
for my $mode ('always', 'off', undef)
{
	my $name = 'start without its checkpoint record, ' . ($mode // 'unpatched server');
	my $hidden = "$data/pg_wal.hidden";
	my $run = sub { start_and_fail($node, $name) };

	next if !defined $mode && !defined $vanilla;
	($expected, $valid) = change_and_crash($node);
	mkdir $hidden or die $!;
	rename $_, "$hidden/" . s{.*/}{}r for glob "$data/pg_wal/0*";
	set_mode($node, $mode);
	like(defined $mode ? $run->() : with_install($node, $vanilla, $run),
		qr/could not locate a valid checkpoint record/, "$name: it fails");
	rename $_, "$data/pg_wal/" . s{.*/}{}r for glob "$hidden/0*";
	rmdir $hidden or die $!;
	set_mode($node, 'always');
	warm_after_crash($node, $valid, $name);
	contents_right($node, $expected, $name);
}

# --- a start that dies between its first write to the pool and the record
($expected, $valid) = change_and_crash($node);
mkdir "$record.tmp" or die $!;
start_fails($node, qr/could not write file "[^"]*pg_pcache\.state\.tmp": it is a directory/, 'record cannot be written');
rmdir "$record.tmp" or die $!;
is(status_json($node)->{state}, 'attaching', 'record cannot be written: the pool is marked');
cold_then_warm($node, $expected, 'incarnation',
	qr/^the pool was last used by incarnation /, 'record cannot be written');

# --- a start that finds the pool of no use, and dies before it says so there
SKIP:
{
	my ($libdir) = run_command([ 'pg_config', '--pkglibdir' ]);

	skip 'injection points or the test module pcache_inject are missing', 1
	  if ($ENV{enable_injection_points} // '') ne 'yes' || !-e "$libdir/pcache_inject.so";
	my $name = 'cut off before the pool is marked';

	($expected, $valid) = change_and_crash($node);
	my $control = slurp_file("$data/global/pg_control");
	# as if another server had written it
	substr($control, 24, 8) = pack 'q', unpack('q', substr $control, 24, 8) + 100;
	substr($control, control_crc_offset(), 4) = pack 'L', crc32c(substr $control, 0, control_crc_offset());
	write_bytes("$data/global/pg_control", 0, $control);
	is(verify_json($node)->{reason}, 'control_file', "$name: it would be cold");
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'pcache_inject'\npcache_inject.crash_at = 'persistent-cache-adopting'\n");
	start_fails($node, qr/dies at injection point "persistent-cache-adopting"/, $name);
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);
	$node->adjust_conf('postgresql.conf', 'pcache_inject.crash_at', undef);
	cold_then_warm($node, $expected, 'control_file', $foreign, $name);
}

# --- a start in mode off says so in the record
($expected, $valid) = change_and_crash($node);
set_mode($node, 'off');
$node->start;
$node->stop;
like(slurp_file($record), qr/^incarnation = 0000000000000000$/m, 'mode off: it is in the record');
$before = (stat $record)[1];
$node->start;
is((stat $record)[1], $before, 'mode off once more: the record is not written again');
$node->stop;
set_mode($node, 'always');
is(verify_json($node)->{reason}, 'incarnation', 'mode off: pg_pcache verify says why');

# --- pg_pcache must not make the two agree again
my ($rc, $out, $err) = pcache($node, 'rebuild', '--resize' => '64MB');
is($rc, 2, 'mode off, then a resize: pg_pcache says that the next start is cold') or diag($err);
like($out, qr/the cluster was run without the pool/, 'mode off, then a resize: and why');
cold_then_warm($node, $expected, 'incarnation', $without, 'mode off, then a resize');
# neither lose that they do
($expected, $valid) = change_and_crash($node);
($rc, $out, $err) = pcache($node, 'rebuild', '--resize' => '80MB');
is($rc, 0, 'a resize after a crash: pg_pcache says that the next start is warm') or diag($err);
warm_after_crash($node, $valid, 'a resize after a crash');
contents_right($node, $expected, 'a resize after a crash');

# --- if it cannot be said, the server starts nevertheless, and pg_control tells
($expected, $valid) = change_and_crash($node);
mkdir "$record.tmp" or die $!;
set_mode($node, 'off');
$offset = log_offset($node);
$node->start;
kill_all($node);
rmdir "$record.tmp" or die $!;
like(slurp_file($node->logfile, $offset),
	qr/WARNING:  could not record that the server runs without its persistent cache\n[^\n]*DETAIL:  could not write file/,
	'mode off, record cannot be written: a warning');
set_mode($node, 'always');
cold_then_warm($node, $expected, 'checkpoint', qr/^the pool knows of checkpoints /,
	'mode off, record cannot be written');

# --- planned_restart in between is no run without the pool
($expected, $valid) = change_and_crash($node);
set_mode($node, 'planned_restart');
warm_after_crash($node, $valid, 'planned_restart in between');
$node->stop;
set_mode($node, 'always');
$offset = log_offset($node);
$node->start;
is(start_outcome($node, $offset)->{start}, 'warm', 'planned_restart in between: warm once more');
($expected, $valid) = change_and_crash($node);
warm_after_crash($node, $valid, 'planned_restart in between, then a crash');
contents_right($node, $expected, 'planned_restart in between, then a crash');

# --- cut off between pg_control and the confirmed half: that one is older, or torn
for my $case ([ 'older', 1 ], [ 'torn', 0 ])
{
	my ($name, $intact) = ("confirmed half is $case->[0]", $case->[1]);

	($expected, $valid) = change_and_crash($node);
	@half = read_halves();
	write_half(1, $half[1][0] - 1, $half[1][1] ^ 1, @{ $half[1] }[2, 3], $half[1][4] - 30, $half[1][5], $half[1][6] ^ 1);
	write_bytes($pool, CONTROL_OFFSET + 64, "\x5A") if !$intact;
	warm_after_crash($node, $valid, $name);
	contents_right($node, $expected, $name);
}

# --- and before pg_control: only the pending half is of the update
($expected, $valid) = change_and_crash($node);
@half = read_halves();
write_half(0, $half[0][0] + 1, $half[0][1] ^ 1, @{ $half[0] }[2, 3], $half[0][4] + 30, $half[0][5], 0);
warm_after_crash($node, $valid, 'pending half is newer');
contents_right($node, $expected, 'pending half is newer');

# --- another pending half than pg_control
($expected, $valid) = change_and_crash($node);
@half = read_halves();
write_half(0, $half[0][0] + 1, @{ $half[0] }[1 .. 3], $half[0][4] - 2, $half[0][5], 0);
write_bytes($pool, CONTROL_OFFSET + 64, "\x5A\x5B");
cold_then_warm($node, $expected, 'control_file', $foreign, 'pending half of another time');

# --- no line, as in a pool that was last used by a server without it
($expected, $valid) = change_and_crash($node);
write_bytes($pool, CONTROL_OFFSET, "\0" x 128);
cold_then_warm($node, $expected, 'control_file', $foreign, 'pool without the line');
$node->stop;
done_testing();
