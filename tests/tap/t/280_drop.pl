
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache drop takes the pool away, wherever it is and whatever interrupts the verb,
# and never the pool of somebody else.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use File::Path qw(remove_tree);
use JSON::PP qw(decode_json);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = pool_root();
my $node = new_node('main', mode => undef, shared_buffers => '16MB');
my $data = $node->data_dir;
my $created = qr/^the pool was created by this start$/;
my ($rc, $out, $err, $offset);

# What is in a directory, and how large it is.
sub contents { return join ' ', map { s/.*\///r . ':' . (-s $_ // '') } sort glob "$_[0]/*" }

# Refused, with this message, and nothing has changed in the directory.
sub refused
{
	my ($name, $message, $who, $options, $place) = @_;
	my $before = contents($place);

	($rc, $out, $err) = pcache($who, 'drop', @$options);
	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, $message, "$name: message");
	is(contents($place), $before, "$name: nothing was removed");
	return;
}

sub dropped
{
	my ($name, $pattern, @options) = @_;

	($rc, $out, $err) = pcache($node, 'drop', @options);
	is($rc, 0, "$name: exit status");
	is($err, '', "$name: nothing on stderr");
	like($out, $pattern, "$name: output");
	return;
}

# A pool in this directory, of a server that the configuration does not switch on.
sub make_pool
{
	my ($directory, %params) = @_;

	add_pool($node, directory => $directory, %params);
	set_mode($node, 'off');
	return;
}

# Nothing, and nobody knows where it could be.
mkdir "$root/top", 0700;
($rc, $out, $err) = pcache($node, 'drop');
is($rc, 1, 'no setting: exit status');
like($err, qr/^pg_pcache: error: "pcache\.directory" is not set\n.*hint: Give the directory of the pool with --directory\.$/, 'no setting: says so');
set_directory($node, "$root/top/main");
dropped('no pool', qr{^There is nothing to drop: there is no pool in directory "\Q$root\E/top/main"\.\n});
ok(decode_json((pcache($node, 'drop', '--json'))[1])->{nothing_to_drop}, 'no pool: JSON');

# The pool's directory was made by init, the one above it is somebody else's.
add_pool($node, directory => "$root/top/main");
$node->start;
load_data($node, rows => 1000);
my $expected = checksums($node);
restart_warm($node, 'before');
my $pid = (split /\n/, slurp_file("$data/postmaster.pid"))[0];
refused('live server', qr/^pg_pcache: error: cluster must be shut down\n.*detail: A server with PID $pid is running in data directory "\Q$data\E"\.\n/,
	$node, $_, "$root/top/main")
  for [], ['--force'], ['--dry-run'];
$node->stop;

my $blocks = 512 * (stat "$root/top/main/pool")[12];
my $would_be = qr/pool: +\Q$root\E\/top\/main\/pool\nfreed: +[\d.]+ MB\n$/;
($rc, $out, $err) = pcache($node, 'drop', '--dry-run');
is($rc, 0, '--dry-run: exit status');
like($out, qr/^Dry run: nothing was changed\.  This would be removed:\n\n$would_be/, '--dry-run: output');
like($err, qr/^pg_pcache: warning: "pcache\.mode" is "planned_restart", so the next start of the server may create the pool again\n.*hint: Set it to "off", or remove the settings of the persistent cache from the configuration\.$/,
	'--dry-run: the configuration is warned of');
is(verify_json($node)->{rc}, 0, '--dry-run: the next start will still be warm');
is(decode_json((pcache($node, 'drop', '--dry-run', '--json'))[1])->{freed}, $blocks, '--dry-run --json: bytes');

# Somebody has the pool.
open my $fh, '<', "$root/top/main/pool" or die $!;
flock $fh, LOCK_SH | LOCK_NB or die $!;
refused('locked pool', qr/^pg_pcache: error: persistent cache pool ".*" is locked by another process\n/, $node, $_, "$root/top/main")
  for [], ['--force'];
close $fh;

# Not switched off, so the next start makes one again, as was warned.
my $json = decode_json((pcache($node, 'drop', '--json'))[1]);
is($json->{pool}, "$root/top/main/pool", 'JSON');
ok(-d "$root/top/main", 'the directory stays');
is(contents("$root/top/main"), '', '... and is empty');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, $created, 'not off: created again');
is(checksums($node), $expected, 'not off: the data files are as they were');
$node->stop;
set_mode($node, 'off');
dropped('switched off', qr/^This was removed:\n\n$would_be/);
dropped('repeated', qr/^There is nothing to drop: /);

# The settings are gone already.
make_pool("$root/top/abs");
set_directory($node, undef);
dropped('--directory', qr/^pool: +\Q$root\E\/top\/abs\/pool$/m, '--directory' => "$root/top/abs");
ok(!-e "$root/top/abs/pool", '--directory: it is gone');

# What else is in the directory.
mkdir "$root/top/shared", 0700;
make_pool("$root/top/shared");
append_to_file("$root/top/shared/other", 'x');
dropped('directory of others', qr/^pool: +\Q$root\E\/top\/shared\/pool$/m);
is(contents("$root/top/shared"), 'other:1', 'directory of others: what is in it stays');
unlink "$root/top/shared/other";

# What is not ours, or cannot be told.
my $pool = "$root/top/shared/pool";
make_pool("$root/top/shared");
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(force_initdb => 1);
refused('foreign pool', qr/^pg_pcache: error: persistent cache pool ".*" is not known to be that of this data directory\n.*detail: It belongs to another cluster, with system identifier \d+; this one has \d+\.\n.*hint: Use --force to remove it all the same, if nobody else needs it\.$/,
	$other, [ '--directory' => "$root/top/shared", @$_ ], "$root/top/shared")
  for [], ['--dry-run'];
write_bytes($pool, 0, "\0" x 64);
is((pcache($node, 'drop', '--dry-run'))[0], 0, 'one superblock: the other one says whose it is');
write_bytes($pool, COPY_OFFSET + 8, "\0" x 64);
write_bytes($pool, 0, read_bytes($pool, COPY_OFFSET, 64));
refused('damaged pool', qr/detail: Its superblock is damaged, so the cluster it belongs to is not known\.\n/, $node, [], "$root/top/shared");
mkdir "$root/top/file", 0700;
append_to_file("$root/top/file/pool", 'precious');
chmod 0600, "$root/top/file/pool";
refused('no pool', qr/^pg_pcache: error: file ".*" is not a persistent cache pool\n.*hint: Use --force/, $node,
	[ '--directory' => "$root/top/file" ], "$root/top/file");
unlink "$root/top/file/pool";
for my $force ([], ['--force'])
{
	my $name = "@$force" || 'no --force';

	symlink $pool, "$root/top/file/pool";
	refused("symbolic link, $name", qr/error: persistent cache pool ".*" is not a regular file\n/, $node, [ '--directory' => "$root/top/file", @$force ], "$root/top/file");
	unlink "$root/top/file/pool";
	link $pool, "$root/top/file/pool" or die $!;
	refused("another name, $name", qr/error: persistent cache pool ".*" is the same file as another one: it has 2 links\n/, $node, $force, "$root/top/file");
	unlink "$root/top/file/pool";
}

# A directory that others can change: nothing is removed there.
chmod 0777, "$root/top/shared";
refused('directory of everybody', qr/error: persistent cache directory ".*" has invalid permissions\n/, $node, [], "$root/top/shared");
($rc, $out, $err) = pcache($node, 'drop', '--force');
like($err, qr/^pg_pcache: warning: persistent cache directory ".*" has invalid permissions\n.*detail: Nothing is removed there\.$/m, 'directory of everybody, --force: tells');
is(contents("$root/top/shared"), 'pool:' . -s $pool, 'directory of everybody, --force: the pool stays');
chmod 0700, "$root/top/shared";
dropped('damaged pool, --force', qr/^pool: +\Q$pool\E$/m, '--force');

# A directory of the cluster.
set_directory($node, "$data/pg_twophase");
refused('directory of the cluster', qr/error: directory "\Q$data\E\/pg_twophase" is inside the data directory\n/, $node, [], "$data/pg_twophase");
pcache($node, 'drop', '--force');
ok(-d "$data/pg_twophase", 'directory of the cluster, --force: it stays');
is((pcache($node, 'drop', '--size' => '1MB'))[0], 1, 'option of another verb: exit status');

# Interrupted at each step, and run again; or the server is started in between.
SKIP:
{
	skip 'pg_pcache cannot be killed at chosen steps in this build', 1 if !can_be_killed();
	# step, what is left in the directory, and how a server starts then
	for my $case (
		[ 'init-created', 'pool' ],
		[ 'drop-leftovers', 'pool', 'warm' ],
		[ 'drop-pool', '', $created ])
	{
		my ($step, $left, $outcome) = @$case;

		for my $again ('drop', defined $outcome ? 'start' : ())
		{
			my $name = "killed at $step, then $again";
			my $valid;

			add_pool($node, directory => "$root/top/kill");
			$node->start;
			$valid = warm_up($node);
			$node->stop;
			set_mode($node, 'off');
			{
				local $ENV{PG_PCACHE_KILL_AT} = $step;
				is((pcache($node, $step =~ /^init/ ? ('init', '--force') : 'drop'))[0], -9, "$name: killed");
			}
			is(join(' ', sort { $b cmp $a } map { s/.*\///r } glob "$root/top/kill/*"), join(' ', sort { $b cmp $a } split / /, $left), "$name: files in the directory");
			if ($again eq 'start')
			{
				set_mode($node, 'planned_restart');
				$offset = log_offset($node);
				$node->start;
				if ($outcome eq 'warm') { is_warm($node, $offset, $valid, $name) }
				else { is_cold($node, $offset, $outcome, $name) }
				restart_warm($node, "$name, restarted");
				$node->stop;
				set_mode($node, 'off');
			}
			dropped($name, $left eq '' && $again eq 'drop' ? qr/^There is nothing to drop: / : qr/^This was removed:\n/);
			is(contents("$root/top/kill"), '', "$name: no file is left");
			rmdir "$root/top/kill";
		}
	}
}

is(contents($root), 'top:' . -s "$root/top", 'nothing is left where the pools were');

done_testing();
