
# Copyright (c) 2026, the persistent-cache developers

# Backups of all kinds: none of them has the pool, unless a tool follows the
# symbolic link of a cluster that has one.  What is restored starts by itself,
# is cold, and never takes the pool of a cluster that runs.
#
# BACKREST names another pgbackrest than the one by PATH.

use strict;
use warnings FATAL => 'all';

use File::Find;
use File::Path qw(remove_tree);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %streaming = (allows_streaming => 1);
my $copies = 0;

# Two clusters: the directory is a setting; or the administrator has made a symbolic
# link of the default.
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(%streaming);
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\npersistent_cache_directory = '" . pool_root() . "/main'");
set_mode($node, 'planned_restart');
my $linked = new_node('linked', init => \%streaming, shared_buffers => '16MB', mode => undef);
symlink pool_root() . '/linked', $linked->data_dir . '/pg_pcache' or die $!;
add_pool($linked, setting => 0);

for my $cluster ($node, $linked)
{
	$cluster->start;
	load_data($cluster, rows => 2000);
	restart_warm($cluster, $cluster->name . ': before');
}
my $expected = checksums($node, tables => [LOGGED]);

sub available
{
	my ($program) = @_;
	return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

# A cluster of what a tool has put into a new data directory, with a pool of its
# own unless another directory is given.  undef: as the copy has it.
sub restored
{
	my ($put, @directory) = @_;
	my $copy = PostgreSQL::Test::Cluster->new('copy' . ++$copies);
	my $data = $copy->data_dir;
	my $directory = @directory ? $directory[0] : pool_root() . '/' . $copy->name;

	mkdir $copy->basedir;
	$put->($data);
	chmod 0700, $data;
	$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'");
	$copy->append_conf('postgresql.conf', "persistent_cache_directory = '$directory'") if defined $directory;
	return $copy;
}

# It starts by itself, cold, with the right contents, and is warm from then on.
sub starts_cold
{
	my ($copy, $reason, $name) = @_;
	my $offset = log_offset($copy);

	$copy->start;
	is_cold($copy, $offset, $reason, $name);
	is(checksums($copy, tables => [LOGGED]), $expected, "$name: contents are right");
	restart_warm($copy, "$name, restarted");
	$copy->stop;
	return;
}

# What of the pool is below a directory, for a tool that follows links.  A backup
# of pgBackRest has ".gz" behind each name.
sub pool_names
{
	my ($directory) = @_;
	my @found;

	find({ follow_fast => 1, no_chdir => 1, wanted => sub { push @found, $_ if m{/(?:pool|pg_pcache\.state)(?:\.gz)?$} } }, $directory);
	s/^\Q$directory\E\/// for @found;
	return [ sort @found ];
}

# Both clusters run, and pg_basebackup takes them, plain and as tar.
for my $cluster ($node, $linked)
{
	for my $format (qw(plain tar))
	{
		my $name = $cluster->name . ", pg_basebackup, $format";
		my $backup = $cluster->backup_dir . "/$format";

		$cluster->backup($format, $format eq 'tar' ? (backup_options => [ '--format' => 'tar' ]) : ());
		my $copy = restored(
			sub {
				mkdir $_[0] or die $!;
				return system_or_bail('cp', '-a', "$backup/.", $_[0]) if $format eq 'plain';
				system_or_bail('tar', '-xf', "$backup/base.tar", '-C', $_[0]);
				system_or_bail('tar', '-xf', "$backup/pg_wal.tar", '-C', "$_[0]/pg_wal");
			});
		is_deeply(pool_names($copy->data_dir), [], "$name: neither pool nor record");
		starts_cold($copy, qr/^the pool was created by this start$/, $name);
	}
}

# A copy of the files of a running server, as the documentation of PostgreSQL
# describes it.  It has the record, which names the pool of the original.
my %copy_with = (
	'cp -a' => sub { system_or_bail('cp', '-a', $_[0], $_[1]) },
	'rsync -a' => sub { system_or_bail('rsync', '-a', "$_[0]/", $_[1]) },
	'tar' => sub { mkdir $_[1]; system_or_bail('sh', '-c', "tar -C '$_[0]' -cf - . | tar -C '$_[1]' -xf -") });
my %follow_with = (
	'cp -aL' => sub { system_or_bail('cp', '-aL', $_[0], $_[1]) },
	'rsync -aL' => sub { system_or_bail('rsync', '-aL', "$_[0]/", $_[1]) },
	'tar -h' => sub { mkdir $_[1]; system_or_bail('sh', '-c', "tar -C '$_[0]' -chf - . | tar -C '$_[1]' -xf -") });

sub online
{
	my ($cluster, $tool) = @_;
	return sub {
		my ($to) = @_;
		my $session = $cluster->background_psql('postgres');

		$session->query_safe(q{SELECT pg_backup_start('by hand', true)});
		$tool->($cluster->data_dir, $to);
		my $label = $session->query_safe('SELECT labelfile FROM pg_backup_stop(false)');
		$session->quit;
		unlink "$to/postmaster.pid";
		append_to_file("$to/backup_label", "$label\n");
		# the WAL that it needs
		system_or_bail('cp', '-a', $cluster->data_dir . '/pg_wal', "$to/");
	};
}

sub tools
{
	my ($tools) = @_;
	return grep { !/^rsync/ || available('rsync') } sort keys %$tools;
}
diag('rsync is not installed, and is left out') if !available('rsync');

for my $tool (tools(\%copy_with))
{
	my $name = "$tool of a running server";
	my $copy = restored(online($node, $copy_with{$tool}));

	is_deeply(pool_names($copy->data_dir), ['pg_pcache.state'], "$name: the record, but no pool");
	starts_cold($copy, qr/^the pool was created by this start$/, $name);
	like(slurp_file($copy->logfile), qr/LOG:  the pool in "\Q@{[pool_root()]}\E\/main", which the cluster was last used with, is left behind/,
		"$name: the original's pool is named");
}

# With the original's directory it does not get that pool while the original
# runs, and is cold when it does not.
my $live = qr/FATAL:  persistent cache pool ".*" is locked by another process\n.*HINT:  Is another server, or pg_pcache, using it\?/;
my $other = qr/^the pool was last used by incarnation [0-9a-f]{16} of the server, the data directory by [0-9a-f]{16}$/;
my $there = restored(online($node, $copy_with{'cp -a'}), undef);
start_fails($there, $live, 'in the place of an original that runs');
$node->stop;
starts_cold($there, qr/^the cluster was run without the pool, and not shut down cleanly$/, 'in the place of an original that is down');
my $offset = log_offset($node);
$node->start;
is_cold($node, $offset, $other, 'the original after that');
restart_warm($node, 'the original after that, restarted');

# The same of a cluster that is down: an identical cluster could use the pool.
# It cannot once the original has run.
$node->stop;
my $twin = restored(sub { $copy_with{'cp -a'}->($node->data_dir, $_[0]) }, undef);
my $own = restored(sub { $copy_with{'cp -a'}->($node->data_dir, $_[0]) });
is_deeply(pool_names($own->data_dir), ['pg_pcache.state'], 'a copy of a stopped server: the record, but no pool');
starts_cold($own, qr/^the pool was created by this start$/, 'a copy of a stopped server');
$node->start;
start_fails($twin, $live, 'a copy of a stopped server, in the place of an original that runs');
$node->stop;
starts_cold($twin, $other, 'a copy of a stopped server, in the place of an original that has run');
$node->start;

# A link that is copied as a link leads to the original's pool.
start_fails(restored(online($linked, $copy_with{'cp -a'}), undef), $live, 'a link that was copied');

# pgBackRest, if this one knows PostgreSQL 18.
SKIP:
{
	my $program = $ENV{BACKREST} // 'pgbackrest';
	my $name = 'pgBackRest';
	my $work = PostgreSQL::Test::Utils::tempdir();
	my $config = "$work/pgbackrest.conf";
	my @command = ($program, "--config=$config", '--stanza=main');

	skip('pgbackrest is not installed', 1) if $program !~ m{/} && !available($program);
	append_to_file($config, "[global]\nrepo1-path=$work/repo\nlog-path=$work\nlock-path=$work/lock\nspool-path=$work/spool\nstart-fast=y\n"
		. "repo1-retention-full=2\n[main]\npg1-path=" . $node->data_dir . "\npg1-socket-path=" . $node->host . "\npg1-port=" . $node->port . "\n");
	mkdir "$work/repo" or die $!;
	my ($out, $err) = run_command([ @command, 'stanza-create' ]);
	skip("this pgbackrest does not know PostgreSQL 18, and --pg-version-force does not help: " . (run_command([ $program, 'version' ]))[0], 1)
	  if "$out$err" =~ /is this version of PostgreSQL supported/;
	$node->append_conf('postgresql.conf', "archive_mode = on\narchive_command = '@command archive-push %p'");
	restart_warm($node, "$name: with archiving");
	command_ok([ @command, 'backup' ], "$name: backup");
	is_deeply(pool_names("$work/repo/backup/main/latest"), ['pg_data/pg_pcache.state.gz'], "$name: the record, but no pool");
	my $copy = restored(sub { command_ok([ @command, "--pg1-path=$_[0]", '--archive-mode=off', 'restore' ], "$name: restore") });
	starts_cold($copy, qr/^the pool was created by this start$/, $name);
	start_fails(restored(sub { command_ok([ @command, "--pg1-path=$_[0]", '--archive-mode=off', 'restore' ], "$name: restore") }, undef),
		$live, "$name: in the place of an original that runs");
}

# Tools that follow the link of a cluster that has one copy the pool, too.  It is
# then an ordinary file, and the server says so.  The way out: give the cluster a
# directory, and remove what was copied.
sub pool_was_copied
{
	my ($copy, $name) = @_;
	my $data = $copy->data_dir;

	is_deeply(pool_names($data), ['pg_pcache.state', 'pg_pcache/pool'], "$name: the pool is in it");
	my $message = qr/persistent cache pool "\Q$data\E\/pg_pcache\/pool" is a copy of one that was on tmpfs\n.*(?i:hint): .*Remove directory "\Q$data\E\/pg_pcache", and set "persistent_cache_directory"/;
	my ($rc, undef, $err) = pcache($copy, 'check');
	is($rc, 1, "$name: pg_pcache check says that the server will not start");
	like($err, $message, "$name: pg_pcache check says why");
	start_fails($copy, qr/FATAL:  $message/, $name);
	remove_tree("$data/pg_pcache");
	$copy->append_conf('postgresql.conf', "persistent_cache_directory = '" . pool_root() . '/' . $copy->name . "'");
	starts_cold($copy, qr/^the pool was created by this start$/, "$name, and the way out");
	return;
}

pool_was_copied(restored(online($linked, $follow_with{$_}), undef), "$_ of a linked cluster") for tools(\%follow_with);
$linked->stop;
pool_was_copied(restored(sub { $follow_with{'cp -aL'}->($linked->data_dir, $_[0]) }, undef), 'cp -aL of a linked cluster that is down');

# A setting instead of the link: the pool stays, and so do the pages.
my $valid = 0;
$linked->start;
$valid = warm_up($linked);
$linked->stop;
unlink $linked->data_dir . '/pg_pcache' or die $!;
set_directory($linked, pool_dir($linked));
$offset = log_offset($linked);
$linked->start;
is_warm($linked, $offset, $valid, 'a setting instead of the link');
is(checksums($linked, tables => [LOGGED]), $expected, 'a setting instead of the link: contents are right');

# A copy of a cluster that is down is the same cluster until one of the two runs.
$valid = warm_up($linked);
$linked->stop;
my $same = restored(sub { $copy_with{'cp -a'}->($linked->data_dir, $_[0]) }, undef);
$same->start;
is_warm($same, 0, $valid, 'a copy in the place of its original, which is down');
is(checksums($same, tables => [LOGGED]), $expected, 'a copy in the place of its original: contents are right');
$same->stop;
$offset = log_offset($linked);
$linked->start;
is_cold($linked, $offset, $other, 'and the original after that');
is(checksums($linked, tables => [LOGGED]), $expected, 'and the original after that: contents are right');
$linked->stop;

$node->stop;
done_testing();
