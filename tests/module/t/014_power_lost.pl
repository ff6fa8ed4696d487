
# Copyright (c) 2026, the persistent-cache developers

# Mode always on persistent memory, of which a loss of power leaves what was flushed
# (tests/powercut): pages stay that the ledger has, and whose sums fit.

use strict;
use warnings FATAL => 'all';

use JSON::PP;
use PCacheKilled;
use PCacheModule;
use PCache::PowerCut;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'pg_pcache was built without libpmem or libxxhash' if !has_ledger();

my $seed = seed_random();
my $tmp = PostgreSQL::Test::Utils::tempdir;
my $SAVED = 2;

# The program is linked with the same libraries as the server's library.
sub has_ledger
{
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	my $program = slurp_file("$bindir/pg_pcache");

	return $program =~ /XXH3_64bits/ && $program =~ /pmem_flush/;
}

# Have what follows take this node's pool for persistent memory.
sub take_for_pmem
{
	my ($node) = @_;
	my $name = $node->name;

	delete @ENV{ grep { /^POWERCUT/ } keys %ENV };
	%ENV = (%ENV, powercut_environment(pool_root() . "/$name", $seed));
	return;
}

# Entries with a sum, by what they are about.
sub listed
{
	my ($node) = @_;
	my %by_generation;

	$by_generation{ $_->{seq} }++ for grep { $_->{seq} != $SAVED } pool_entries(pool_file($node));
	return \%by_generation;
}

# What pg_pcache check says of a loss of power now.
sub check_power
{
	my ($node) = @_;
	my ($json) = run_command([ 'pg_pcache', 'check', '--json', '-D', $node->data_dir ]);

	return decode_json($json)->{power_lost};
}

# Wait until so many pages are listed for the last checkpoint, and no more are.  A worker
# that waits for a processor, or for WAL to be flushed, pauses.
sub wait_for_list
{
	my ($node, $at_least) = @_;
	my ($last, $equal) = (0, 0);

	for (1 .. 2 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $listed = check_power($node)->{listed} // 0;

		$equal = $listed == $last ? $equal + 1 : 0;
		return $listed if $listed >= $at_least && $equal == 4;
		$last = $listed;
		select undef, undef, undef, 0.5;
	}
	die "only $last pages were listed";
}

sub lose_power { my ($node) = @_; cut_power(pool_root() . '/' . $node->name, $seed++); return }

# A test: power was lost, and the start keeps what was listed, as foretold.  Returns the
# outcome.
sub start_after_power_loss
{
	my ($node, $name, %params) = @_;
	my ($json) = run_command([ 'pg_pcache', 'verify', '--json', '--pages', '-D', $node->data_dir ]);
	my $foretold = decode_json($json);
	my $outcome = start_and_compare($node, $name, %params);

	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason} // $outcome->{log});
	like($outcome->{log}, qr/persistent cache: power was lost; what was there was checked in/, "$name: the log says so");
	cmp_ok($outcome->{kept}, '>=', $params{at_least}, "$name: kept $outcome->{kept} pages") if defined $params{at_least};
	is($foretold->{next_start}, 'warm', "$name: foretold");
	is($foretold->{pages}{kept}, $outcome->{kept}, "$name: as many pages were foretold");
	is($foretold->{pages}{lc s/ /_/gr}, $outcome->{dropped}{$_}, "$name: and $outcome->{dropped}{$_} dropped, $_")
	  for sort keys %{ $outcome->{dropped} };
	is($foretold->{compared}{$_}, 0, "$name: $_ pages") for qw(impossible unreadable);
	return $outcome;
}

my $node = module_node('main', mode => 'always', standby => 1, conf => "fsync = on\n", init => { extra => ['--data-checksums'] });
take_for_pmem($node);
$node->start;
like(slurp_file($node->logfile), qr/persistent cache: starting cold/, 'a new pool');
load_tables($node);
my $valid = warm_pages($node);
$node->safe_psql('postgres', 'CHECKPOINT');
my $listed = wait_for_list($node, 500);
cmp_ok($listed, '>', 0.7 * $valid, "listed $listed of $valid pages");

# ---------------------------------------------------------------- what is listed
{
	my %first = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{
SELECT pg_relation_filenode(oid) FROM pg_class WHERE relkind IN ('i', 'S') AND relpersistence = 'p' AND pg_relation_filenode(oid) IS NOT NULL});
	my %unlogged = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{
SELECT pg_relation_filenode(oid) FROM pg_class WHERE relpersistence <> 'p' AND pg_relation_filenode(oid) IS NOT NULL});
	my @entries = grep { $_->{seq} != $SAVED } pool_entries(pool_file($node));

	is(scalar(grep { $_->{fork_number} != 0 } @entries), 0, 'listed: only pages of main forks');
	is(scalar(grep { $unlogged{ $_->{rel_number} } } @entries), 0, 'listed: no page of an unlogged relation');
	is(scalar(grep { $_->{block_number} == 0 && $first{ $_->{rel_number} } } @entries), 0, 'listed: no first page of an index or a sequence');
	is(scalar(grep { $_->{sum} == 0 || $_->{page_lsn} == 0 } @entries), 0, 'listed: each with a sum and an LSN');
}
{
	my ($text) = run_command([ 'pg_pcache', 'check', '-D', $node->data_dir ]);
	my ($status) = run_command([ 'pg_pcache', 'status', '-D', $node->data_dir ]);
	my $power_lost = check_power($node);

	is($power_lost->{next_start}, 'warm', 'check: warm if power is lost now');
	cmp_ok(abs($power_lost->{listed} - $listed), '<', 50, "check: $power_lost->{listed} pages are listed");
	like($text, qr/^if power is lost now: \d+ pages are listed, and those/m, 'check: the same as text');
	like($status, qr/^after a loss of power: +ledger$/m, 'status says what a start will go by');
}

# ---------------------------------------------------------------- warm
for my $k (1 .. 3)
{
	kill_all($node);
	lose_power($node);
	my $outcome = start_after_power_loss($node, "power lost, $k", at_least => 0.95 * $listed);
	change_tables($node);
	warm_pages($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$listed = wait_for_list($node, 500);
	# some that are changed since, and not confirmed
	$node->safe_psql('postgres', q{UPDATE t_kinds SET p = p + point(1, 0) WHERE id % 50 = 3});
	$listed *= 0.8;
}

# Right after a start that had kept pages, and in the middle of one.
kill_all($node);
lose_power($node);
start_after_power_loss($node, 'once more', at_least => 300);
kill_all($node);
lose_power($node);
start_and_compare($node, 'and at once again');

# processes only: headers tell
warm_pages($node);
$node->safe_psql('postgres', 'CHECKPOINT');
$listed = wait_for_list($node, 500);
kill_seen($node);
{
	my $outcome = start_and_compare($node, 'killed');
	like($outcome->{log}, qr/the server was killed; what it left was judged/, 'killed: judged by the headers');
	cmp_ok($outcome->{kept}, '>', 300, "killed: kept $outcome->{kept} pages");
}

# ---------------------------------------------------------------- what makes it cold
sub cold_after_power_loss
{
	my ($name, $reason, $code) = @_;

	warm_pages($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	wait_for_list($node, 300);
	$code->();
	kill_all($node);
	system_or_bail('cp', $node->data_dir . '/global/pg_control', "$tmp/pg_control");
	lose_power($node);
	cold_start($node, $reason, $name);
	return;
}

# without fsync a checkpoint has not synced what it has written
cold_after_power_loss('fsync was off for a while', qr/^the host was restarted, and files may not have been synced/, sub {
	$node->append_conf('postgresql.conf', 'fsync = off');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT current_setting('fsync') = 'off'});
	$node->append_conf('postgresql.conf', 'fsync = on');
	$node->reload;
	$node->poll_query_until('postgres', q{SELECT current_setting('fsync') = 'on'});
});

# that lasts, as only a start after a crash syncs all files
$node->append_conf('postgresql.conf', 'fsync = off');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('fsync') = 'off'});
$node->append_conf('postgresql.conf', 'fsync = on');
{
	my $offset = log_offset($node);
	$node->restart;
	like(slurp_file($node->logfile, $offset), qr/a start after a loss of power will be cold: "fsync" is off, or was off/, 'fsync was off before a clean stop: the log says so');
	kill_all($node);
	$offset = log_offset($node);
	$node->start;
	unlike(slurp_file($node->logfile, $offset), qr/a start after a loss of power will be cold/, 'fsync was off before a crash: not any more');
}

# a start that believes nothing has nobody believe it later
cold_after_power_loss('damaged pages may have been read', qr/^pages may have been read with/, sub {
	$node->safe_psql('postgres', 'SET zero_damaged_pages = on');
});
{
	my ($entries) = sort { $b <=> $a } values %{ listed($node) };

	cmp_ok($entries, '>', 300, 'entries of the time before are there');
	kill_all($node);
	# as if power had been lost before the start came to write it
	system_or_bail('cp', "$tmp/pg_control", $node->data_dir . '/global/pg_control');
	lose_power($node);
	my $outcome = start_and_compare($node, 'after a cold start');
	cmp_ok($outcome->{dropped}{'another checkpoint'} // 0, '>', 300, 'and are not believed after a cold start');
}

# a file that was restored before the start
$node->safe_psql('postgres', 'CHECKPOINT');
warm_pages($node);
wait_for_list($node, 300);
{
	my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t_heap')});

	kill_all($node);
	lose_power($node);
	pause_for_sighting();
	system_or_bail('cp', $node->data_dir . '/global/pg_control', "$tmp/pg_control");
	system_or_bail('cp', $file, "$file.copy");
	system_or_bail('cp', "$file.copy", $file);
	unlink "$file.copy";
	my $outcome = start_after_power_loss($node, 'a file was restored');
	my $dropped = $outcome->{dropped}{'file changed'} // 0;
	cmp_ok($dropped, '>', 0, 'a file was restored: its pages are dropped');

	# the next start does not see that any more, if power is lost before pg_control is written
	kill_all($node);
	system_or_bail('cp', "$tmp/pg_control", $node->data_dir . '/global/pg_control');
	lose_power($node);
	my $again = start_and_compare($node, 'a file was restored before the last start');
	cmp_ok($again->{kept}, '<', $outcome->{kept} + $dropped / 2, "$dropped pages of that file are not kept later");
}

# what is not whole does not fit
$node->safe_psql('postgres', 'CHECKPOINT');
warm_pages($node);
wait_for_list($node, 300);
kill_all($node);
lose_power($node);
{
	my $blocks = read_superblock(pool_file($node))->{blocks_offset};
	my ($generation) = sort { listed($node)->{$b} <=> listed($node)->{$a} } keys %{ listed($node) };
	my @slots = map { $_->{slot} } grep { $_->{seq} == $generation } pool_entries(pool_file($node));

	# a line of each of ten pages
	for my $i (0 .. 9)
	{
		open(my $fh, '+<:raw', pool_file($node)) or die $!;
		seek($fh, $blocks + BLCKSZ * $slots[$i] + 64 * (($i * 13) % 128), 0);
		print $fh 'x' x 64;
		close $fh;
	}
	my $outcome = start_after_power_loss($node, 'lines of ten pages are lost', at_least => 300);
	cmp_ok($outcome->{dropped}{'changed or lost'} // 0, '>=', 10, 'these pages are dropped');
}

# ---------------------------------------------------------------- a standby
$node->safe_psql('postgres', 'CHECKPOINT');
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
module_settings($standby, mode => 'always', conf => "fsync = on\n");
{
	local %ENV = %ENV;

	take_for_pmem($standby);
	$standby->start;
	for my $k (1, 2)
	{
		change_tables($node);
		$node->safe_psql('postgres', 'CHECKPOINT');
		replay_until($node);
		warm_pages($standby);
		$standby->safe_psql('postgres', 'CHECKPOINT');
		wait_for_list($standby, 300);
		kill_all($standby);
		lose_power($standby);
		start_after_power_loss($standby, "a standby, $k", at_least => 200);
	}
	$standby->stop;
}
$node->stop;

# ---------------------------------------------------------------- hints that are not logged
my $plain = module_node('plain', mode => 'always', conf => "fsync = on\n", major() >= 18 ? (init => { extra => ['--no-data-checksums'] }) : ());
take_for_pmem($plain);
$plain->start;
like(slurp_file($plain->logfile), qr/LOG:  persistent cache: a start after a loss of power will be cold: hint bits are not logged/, 'hints that are not logged: the log says so');
load_tables($plain);
warm_pages($plain);
$plain->safe_psql('postgres', 'CHECKPOINT');
{
	my ($text) = run_command([ 'pg_pcache', 'check', '-D', $plain->data_dir ]);
	like($text, qr/^if power is lost now: COLD: the host was restarted, .*\(hint bits are not logged\)/m, 'hints that are not logged: check says so');
}
pause_for_sighting();
is(scalar(keys %{ listed($plain) }), 0, 'hints that are not logged: nothing is listed');
kill_all($plain);
lose_power($plain);
cold_start($plain, qr/^the host was restarted, and the server was not shut down cleanly \(hint bits are not logged\)/, 'hints that are not logged');
warm_pages($plain);
$plain->safe_psql('postgres', 'CHECKPOINT');
kill_seen($plain);
is(start_and_compare($plain, 'hints that are not logged, killed')->{start}, 'warm', 'hints that are not logged: warm after a kill');
$plain->stop;

# ---------------------------------------------------------------- a page that was written in part
$plain->append_conf('postgresql.conf', "wal_log_hints = on\nwal_level = replica\n");
$plain->start;
warm_pages($plain);
$plain->safe_psql('postgres', 'CHECKPOINT');
wait_for_list($plain, 300);
{
	my $path = $plain->safe_psql('postgres', q{SELECT pg_relation_filepath('t_heap')});
	my $file = $plain->data_dir . "/$path";
	my ($filenode) = $path =~ m{(\d+)$};
	my ($entry) = grep { $_->{rel_number} == $filenode && $_->{fork_number} == 0 && $_->{sum} != 0 } pool_entries(pool_file($plain));

	# its first sector, with the LSN, is the old one; the server does not look
	open(my $fh, '+<:raw', $file) or die $!;
	sysseek($fh, BLCKSZ * $entry->{block_number} + BLCKSZ - 512, 0);
	sysread($fh, my $sector, 512) == 512 or die 'no such block';
	sysseek($fh, -512, 1);
	syswrite($fh, 'x' x 512);
	kill_seen($plain);
	lose_power($plain);
	my ($json) = run_command([ 'pg_pcache', 'verify', '--json', '--pages', '-D', $plain->data_dir ]);
	my $compared = decode_json($json)->{compared};
	is($compared->{impossible}, 0, 'a torn page without a checksum: not impossible') or diag($json);
	is($compared->{older}, 1, 'and is what a checkpoint may have begun to write') or diag($json);
	sysseek($fh, -512, 1);
	syswrite($fh, $sector);
	close $fh;
}
start_after_power_loss($plain, 'a page that was torn');
$plain->stop;

# ---------------------------------------------------------------- relations that are not logged
$plain->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\n");
my $minimal = log_offset($plain);
$plain->start;
like(slurp_file($plain->logfile, $minimal), qr/a start after a loss of power will be cold: "wal_level" is "minimal"/, 'wal_level minimal: the log says so');
pause_for_sighting();
is(scalar(keys %{ listed($plain) }), 0, 'wal_level minimal: nothing is listed');
$plain->stop;

done_testing();
