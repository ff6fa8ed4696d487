# The pool of a standby is filled from its data files.  Unlike those of a primary
# that was shut down cleanly, these may need repair by WAL that is replayed again: a
# base backup may have copied a page while it was written.  The primary, and what a
# replica without the cache makes of the same files, tell what is right.
use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', mode => undef,
	init => { allows_streaming => 1, extra => ['--no-data-checksums'] },
	conf => "wal_keep_size = 480MB\n");
my $contents = 'SELECT count(*), count(DISTINCT id), sum(hashtext(v)) FROM torn';

# Write the buffers of the table to its file.
sub write_out
{
	$primary->safe_psql('postgres',
		"SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('torn')");
	return;
}

# The base backup has the first half of a page as it was written in the middle of it,
# and the second half as it was before.
$primary->start;
$primary->safe_psql('postgres', q{
	CREATE EXTENSION pg_buffercache;
	CREATE TABLE torn (id int, v text);
	INSERT INTO torn SELECT i, repeat('a', 180) FROM generate_series(1, 17) i;
	CREATE TABLE bulk AS SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
	VACUUM FREEZE;
	CHECKPOINT});
my $file = $primary->safe_psql('postgres', "SELECT pg_relation_filepath('torn')");
my $session = $primary->background_psql('postgres');
$session->query_safe("SELECT pg_backup_start('b', true)");
$primary->safe_psql('postgres', "UPDATE torn SET v = repeat('b', 180) WHERE id = 1");
write_out();
my $before = read_bytes($primary->data_dir . "/$file", 0, 8192);
$primary->safe_psql('postgres', "UPDATE torn SET v = repeat('c', 180) WHERE id > 1");
write_out();
my $backup = $primary->backup_dir . '/b';
mkdir $primary->backup_dir;
system('cp', '-a', $primary->data_dir, $backup) == 0 or die;
unlink "$backup/postmaster.pid";
unlink glob "$backup/pg_wal/0*";
write_bytes("$backup/$file", 4096, substr($before, 4096));
append_to_file("$backup/backup_label", $session->query_safe('SELECT labelfile FROM pg_backup_stop(false)') . "\n");
$session->quit;
my $truth = $primary->safe_psql('postgres', $contents);

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
# it runs once, without the cache, and needs no restartpoint when it is stopped
$standby->start;
$primary->wait_for_replay_catchup($standby);
is($standby->safe_psql('postgres', $contents), $truth, 'a replica without the cache');
$standby->stop;
isnt(read_bytes($standby->data_dir . "/$file", 0, 8192), read_bytes($primary->data_dir . "/$file", 0, 8192),
	'the file of the replica is not repaired yet');
my $stopped = $standby->data_dir . '.stopped';
system('cp', '-a', $standby->data_dir, $stopped) == 0 or die;

sub as_stopped
{
	remove_tree(pool_dir($standby)) if defined pool_dir($standby);
	system("rm -rf '@{[$standby->data_dir]}' && cp -a '$stopped' '@{[$standby->data_dir]}'") == 0 or die;
	return;
}

for my $mode (qw(always planned_restart))
{
	for my $how (qw(rebuild list))
	{
		my $name = "$mode, $how";
		my $offset;

		as_stopped();
		add_pool($standby, mode => $mode);
		is((pcache($standby, 'rebuild', '--warm-from-files'))[0], 0, "$name: filled from the files");
		if ($how eq 'list')
		{
			my $list = $standby->data_dir . '.list';
			is((pcache($standby, 'save', '--list', '--to' => $list))[0], 0, "$name: saved");
			unlink pool_file($standby) or die;
			is((pcache($standby, 'load', '--from' => $list))[0], 0, "$name: loaded");
		}
		$offset = log_offset($standby);
		$standby->start;
		is(start_outcome($standby, $offset)->{start}, 'warm', "$name: warm");
		$primary->wait_for_replay_catchup($standby);
		is($standby->safe_psql('postgres', $contents), $truth, "$name: contents");
		$standby->stop('immediate');
		$standby->start;
		$primary->wait_for_replay_catchup($standby);
		is($standby->safe_psql('postgres', $contents), $truth, "$name: contents after a crash");
		$standby->stop;
		$standby->start;
		is($standby->safe_psql('postgres', $contents), $truth, "$name: contents after another start");
		$standby->stop;
	}
}

# What neither verb needs to know it does not ask the archive for, which may not answer
# while the host goes down.
my $asked = PostgreSQL::Test::Utils::tempdir() . '/asked';
$standby->append_conf('postgresql.conf', "restore_command = 'echo %f >>$asked; exit 1'\n");
for my $list ([], ['--list'])
{
	$standby->start;
	$primary->wait_for_replay_catchup($standby);
	$standby->stop;
	unlink $asked;
	is((pcache($standby, 'save', @$list))[0], 0, "archive, @$list: saved");
	unlink pool_file($standby) or die;
	is((pcache($standby, 'load'))[0], 0, "archive, @$list: loaded");
	ok(!-e $asked, "archive, @$list: it was not asked");
}

# A list of the primary says which pages of the replica to read.
$primary->stop;
add_pool($primary, mode => 'planned_restart');
$primary->start;
$primary->safe_psql('postgres', 'SELECT count(*) FROM bulk');
$primary->stop;
my $list = $standby->data_dir . '.list';
is((pcache($primary, 'save', '--list', '--to' => $list))[0], 0, "the primary's list: saved");
unlink pool_file($standby) or die;
is((pcache($standby, 'load', '--from' => $list))[0], 0, "the primary's list: loaded");
is((pcache($primary, 'save', '--to' => "$list.pages"))[0], 0, "the primary's image: saved");
unlink pool_file($standby) or die;
is((pcache($standby, 'load', '--from' => "$list.pages"))[0], 2, "the primary's image: not loaded");

done_testing();
