
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache drop takes the pool away, and every trace of it: wherever the pool
# is, whatever interrupts the verb, and never the pool of somebody else.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use File::Path qw(remove_tree);
use JSON::PP qw(decode_json);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = pool_root();
my $node = new_node('main', mode => undef, shared_buffers => '16MB', init => { allows_streaming => 1 });
my $data = $node->data_dir;

# Everything in the data directory that the cache has made.
sub traces
{
	my $where = $_[0] // $data;
	return join ' ', map { s{^\Q$where\E/}{}r } grep { -e || -l } map { glob "$where/$_" } 'pg_pcache', 'pg_pcache.*';
}

# What is in a directory, and how large it is.
sub contents
{
	return join ' ', map { s/.*\///r . ':' . (-s $_ // '') } sort glob "$_[0]/*";
}

# Refused, with this message, and nothing has changed below these directories.
sub refused
{
	my ($name, $message, $who, $options, @places) = @_;
	my @before = map { contents($_) } @places;
	my $traces = traces($who->data_dir);
	my ($rc, $out, $err) = pcache($who, 'drop', @$options);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, $message, "$name: message");
	is_deeply([ map { contents($_) } @places ], \@before, "$name: nothing was removed");
	is(traces($who->data_dir), $traces, "$name: nor in the data directory");
	return;
}

# Dropped: no trace in the data directory, and no word on stderr.
sub dropped
{
	my ($name, $pattern, @options) = @_;
	my ($rc, $out, $err) = pcache($node, 'drop', @options);

	is($rc, 0, "$name: exit status");
	is($err, '', "$name: nothing on stderr");
	like($out, $pattern, "$name: output");
	is(traces(), '', "$name: no trace in the data directory");
	return;
}

# Nothing.
my ($rc, $out, $err) = pcache($node, 'drop');
is($rc, 0, 'no pool: exit status');
is($out, qq{There is nothing to drop: there is no pool in directory "$data/pg_pcache".\n}, 'no pool: says so');
is($err, '', 'no pool: nothing on stderr');
ok(decode_json((pcache($node, 'drop', '--json'))[1])->{nothing_to_drop}, 'no pool: JSON');

# On tmpfs, by the record.  The pool's directory was made by init, the one above
# it is somebody else's.
mkdir "$root/top", 0700;
add_pool($node, directory => "$root/top/main", setting => 0);
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
my $would_be = qr/pool: +\Q$root\E\/top\/main\/pool\ndirectory: +\Q$root\E\/top\/main\nrecord: +\Q$data\E\/pg_pcache\.state\nfreed: +[\d.]+ MB\n$/;
($rc, $out, $err) = pcache($node, 'drop', '--dry-run');
is($rc, 0, '--dry-run: exit status');
like($out, qr/^Dry run: nothing was changed\.  This would be removed:\n\n$would_be/, '--dry-run: output');
like($err, qr/^pg_pcache: warning: "persistent_cache_mode" is "planned_restart", so the next start of the server may create the pool again\n.*hint: Set it to "off", or remove the settings of the persistent cache from the configuration\.$/,
	'--dry-run: the configuration is warned of');
is(traces(), 'pg_pcache.state', '--dry-run: all is there');
is(verify_json($node)->{rc}, 0, '--dry-run: the next start will still be warm');
is(decode_json((pcache($node, 'drop', '--dry-run', '--json'))[1])->{freed}, $blocks, '--dry-run --json: bytes');

# Somebody has the pool.
open my $fh, '<', "$root/top/main/pool" or die $!;
flock $fh, LOCK_SH | LOCK_NB or die $!;
refused('locked pool', qr/^pg_pcache: error: persistent cache pool ".*" is locked by another process\n/, $node, $_, "$root/top/main")
  for [], ['--force'];
close $fh;

set_mode($node, undef);
dropped('tmpfs, by the record', qr/^This was removed:\n\n$would_be/);
ok(!-e "$root/top/main", 'tmpfs, by the record: the directory is gone');
ok(-d "$root/top", 'tmpfs, by the record: not the one above it');
dropped('repeated', qr/^There is nothing to drop: /);
$node->start;
is(checksums($node), $expected, 'tmpfs, by the record: the data files are as they were');
$node->stop;

# An ordinary directory in the data directory.
is((pcache($node, 'init', '--size' => '1MB'))[0], 0, 'in the data directory: init');
ok(-e "$data/pg_pcache/pool", 'in the data directory: the pool is there');
dropped('in the data directory', qr/^pool: +\Q$data\E\/pg_pcache\/pool\ndirectory: +\Q$data\E\/pg_pcache\nrecord: .*\nfreed: /m);
mkdir "$data/pg_pcache", 0700;
dropped('what a base backup leaves', qr/^pool: +none\ndirectory: +\Q$data\E\/pg_pcache\nfreed: +0 bytes\n/m);

# An absolute directory, where the server has made the pool.  The record says
# where it is, even if the settings are gone.
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$root/top/abs'\npersistent_cache_mode = planned_restart");
$node->start;
$node->stop;
is(traces(), 'pg_pcache.state', 'absolute directory: only the record');
($rc, $out, $err) = pcache($node, 'drop', '--json');
is($rc, 0, 'absolute directory: exit status');
like($err, qr/warning: "persistent_cache_mode" is "planned_restart", so the next start/, 'absolute directory: the configuration is warned of');
my $json = decode_json($out);
is_deeply([ @$json{qw(pool directory record)} ], [ "$root/top/abs/pool", "$root/top/abs", "$data/pg_pcache.state" ],
	'absolute directory: JSON');
ok($json->{directory_removed} && !$json->{dry_run} && !$json->{nothing_to_drop} && $json->{freed} >= 16 * 1024 * 1024, 'absolute directory: more JSON');
ok(!-e "$root/top/abs", 'absolute directory: it is gone');
is(traces(), '', 'absolute directory: no trace in the data directory');
my $offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was created by this start$/, 'absolute directory, not off: created again, as was warned');
$node->stop;
$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', undef);
set_mode($node, undef);
dropped('absolute directory, settings gone', qr/^pool: +\Q$root\E\/top\/abs\/pool$/m);

# A directory that is not ours to remove.
mkdir "$root/top/shared", 0700;
add_pool($node, directory => "$root/top/shared", size => '1MB', setting => 0);
set_mode($node, undef);
append_to_file("$root/top/shared/other", 'x');
dropped('directory of others', qr/^directory: +\Q$root\E\/top\/shared stays: it is not empty$/m);
is(contents("$root/top/shared"), 'other:1', 'directory of others: what is in it stays');
unlink "$root/top/shared/other";
SKIP:
{
	skip 'root may write everywhere', 5 if $> == 0;
	add_pool($node, directory => "$root/top/shared", size => '1MB', setting => 0);
	set_mode($node, undef);
	chmod 0500, "$root/top";
	dropped('directory above is not writable', qr/^directory: +\Q$root\E\/top\/shared stays: the directory above it is not writable$/m);
	chmod 0700, "$root/top";
	is(contents("$root/top/shared"), '', 'directory above is not writable: it stays, empty');
}

# What is not ours, or cannot be told.
my $pool = "$root/top/shared/pool";
add_pool($node, directory => "$root/top/shared", size => '1MB', setting => 0);
set_mode($node, undef);
my $saved = slurp_file($pool);
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(force_initdb => 1);
refused('foreign pool', qr/^pg_pcache: error: persistent cache pool ".*" is not known to be that of this data directory\n.*detail: It belongs to another cluster, with system identifier \d+; this one has \d+\.\n.*hint: Use --force to remove it all the same, if nobody else needs it\.$/,
	$other, [ '--directory' => "$root/top/shared", @$_ ], "$root/top/shared")
  for [], ['--dry-run'];

# A copy has the same system identifier; with a record, too.
my $copy = PostgreSQL::Test::Cluster->new('copy');
PostgreSQL::Test::RecursiveCopy::copypath($data, $copy->data_dir, filterfn => sub { $_[0] !~ /^pg_pcache/ });
chmod 0700, $copy->data_dir;
refused('copy without a record', qr/detail: The data directory has no record of it\.\n/, $copy, [ '--directory' => "$root/top/shared" ], "$root/top/shared");
is((pcache($copy, 'init', '--directory' => "$root/top/copy", '--size' => '1MB'))[0], 0, 'copy: a pool of its own');
refused('copy with another pool', qr/detail: The pool that the data directory has a record of is another one, in "\Q$root\E\/top\/copy"\.\n/,
	$copy, [ '--directory' => "$root/top/shared" ], "$root/top/shared", "$root/top/copy");
my $record = slurp_file("$data/pg_pcache.state");
my $copy_record = slurp_file($copy->data_dir . '/pg_pcache.state');
patch_superblock($pool, incarnation => 2);
write_state($node, $record, incarnation => '0000000000000002');
write_state($copy, $record, incarnation => '0000000000000001');
refused('copy with the record', qr/detail: Another server has used it since, perhaps on a copy of this data directory\.\n/,
	$copy, [], "$root/top/shared");
is((pcache($node, 'drop', '--dry-run'))[0], 0, 'copy with the record: it is the pool of the other one');
write_state($copy, $copy_record);
my $copy_traces = traces($copy->data_dir);
is((pcache($copy, 'drop', '--force', '--directory' => "$root/top/shared"))[0], 0, '--force, --directory: exit status');
ok(!-e "$root/top/shared", '--force, --directory: it is removed all the same');
is(traces($copy->data_dir), $copy_traces, '--force, --directory: the record of the pool elsewhere stays');
is((pcache($copy, 'drop'))[0], 0, 'copy: its own pool');
is(traces($copy->data_dir), '', 'copy: no trace is left');
ok(!-e "$root/top/copy", 'copy: nor of the directory');
mkdir "$root/top/shared", 0700;
append_to_file($pool, $saved);
chmod 0600, $pool;
write_state($node, $record);

# Damaged: not known whose, unless one superblock is intact.
write_bytes($pool, 0, "\0" x 64);
is((pcache($node, 'drop', '--dry-run'))[0], 0, 'one superblock: the other one says whose it is');
write_bytes($pool, COPY_OFFSET, "\0" x 64);
refused('damaged pool', qr/detail: Its superblock is damaged, so the cluster it belongs to is not known\.\n/, $node, [], "$root/top/shared");

# Not a pool at all, and not where the record says that it is.
mkdir "$root/top/file", 0700;
append_to_file("$root/top/file/pool", 'precious');
chmod 0600, "$root/top/file/pool";
refused('no pool', qr/^pg_pcache: error: file ".*" is not a persistent cache pool\n.*hint: Use --force/, $node,
	[ '--directory' => "$root/top/file" ], "$root/top/file", "$root/top/shared");
unlink "$root/top/file/pool";
for my $force ([], ['--force'])
{
	my $name = "@$force" || 'no --force';

	symlink "$root/top/shared/pool", "$root/top/file/pool";
	refused("symbolic link, $name", qr/error: persistent cache pool ".*" is not a regular file\n/, $node, [ '--directory' => "$root/top/file", @$force ], "$root/top/file", "$root/top/shared");
	unlink "$root/top/file/pool";
	link $pool, "$root/top/file/pool" or die $!;
	refused("another name, $name", qr/error: persistent cache pool ".*" is the same file as another one: it has 2 links\n/, $node, $force, "$root/top/file", "$root/top/shared");
	unlink "$root/top/file/pool";
}
# A directory that others can change: nothing is removed there, though --force
# gets rid of what leads there.
chmod 0777, "$root/top/shared";
refused('directory of everybody', qr/error: persistent cache directory ".*" has invalid permissions\n/, $node, [], "$root/top/shared");
chmod 0700, "$root/top/shared";
dropped('damaged pool, --force', qr/^pool: +\Q$pool\E$/m, '--force');

add_pool($node, directory => "$root/top/shared", size => '1MB', setting => 0);
set_mode($node, undef);
chmod 0777, "$root/top/shared";
($rc, $out, $err) = pcache($node, 'drop', '--force');
is($rc, 0, 'directory of everybody, --force: exit status');
like($err, qr/^pg_pcache: warning: persistent cache directory ".*" has invalid permissions\n.*detail: Nothing is removed there\.$/, 'directory of everybody, --force: tells');
is(contents("$root/top/shared"), 'pool:' . -s $pool, 'directory of everybody, --force: the pool stays');
is(traces(), '', 'directory of everybody, --force: no trace in the data directory');
remove_tree("$root/top/shared");

# The pool is gone: with a reboot, or with a mount.
add_pool($node, directory => "$root/top/lost", size => '1MB', setting => 0);
set_mode($node, undef);
remove_tree("$root/top/lost");
dropped('lost with its tmpfs', qr/^pool: +none\nrecord: .*\nfreed: /m);
my $disk = PostgreSQL::Test::Utils::tempdir();
chmod 0700, $disk;
pcache($node, 'init', '--directory' => "$disk/pool", '--size' => '1MB');
rename "$disk/pool", "$disk/not-mounted";
($rc, $out, $err) = pcache($node, 'drop');
is($rc, 0, 'not mounted: exit status');
like($err, qr/^pg_pcache: warning: there is no persistent cache pool in directory "\Q$disk\E\/pool"\n.*hint: If its file system \(file\) is not mounted, the pool is still on it: mount it, and remove the file\.$/,
	'not mounted: tells');
is(traces(), '', 'not mounted: no trace in the data directory');

# A damaged record.
pcache($node, 'init', '--directory' => "$root/top/rec", '--size' => '1MB');
truncate "$data/pg_pcache.state", 20;
refused('damaged record', qr/error: file "\Q$data\E\/pg_pcache\.state" is damaged\n.*hint: Use --force to look for the pool by the configuration, and remove this file all the same\.$/,
	$node, [], "$root/top/rec");
refused('damaged record, --force', qr/error: file "\Q$data\E\/pg_pcache\.state" is damaged, and there is no persistent cache pool in directory "\Q$data\E\/pg_pcache"\n.*hint: Give the directory of the pool with --directory; the file may still show it\.$/,
	$node, ['--force'], "$root/top/rec");
dropped('damaged record, --force, --directory', qr/^pool: +\Q$root\E\/top\/rec\/pool\n/m, '--force', '--directory' => "$root/top/rec");
ok(!-e "$root/top/rec", 'damaged record, --force, --directory: the directory is gone');

# A damaged record, and the setting.
set_directory($node, "$root/top/rec");
pcache($node, 'init', '--directory' => "$root/top/rec", '--size' => '1MB');
truncate "$data/pg_pcache.state", 20;
refused('damaged record, a setting', qr/error: file "\Q$data\E\/pg_pcache\.state" is damaged\n.*hint: Use --force to look for the pool by the configuration, and remove this file all the same\.$/,
	$node, [], "$root/top/rec");
dropped('damaged record, a setting, --force', qr/^pool: +\Q$root\E\/top\/rec\/pool\n/m, '--force');
ok(!-e "$root/top/rec", 'damaged record, a setting, --force: the directory is gone');

# A record that names a directory of the cluster, which is empty.
pcache($node, 'init', '--directory' => "$root/top/rec", '--size' => '1MB');
write_state($node, slurp_file("$data/pg_pcache.state"), directory => "$data/pg_twophase");
refused('directory of the cluster', qr/error: directory "\Q$data\E\/pg_twophase" is inside the data directory\n/, $node, [], "$root/top/rec");
is((pcache($node, 'drop', '--force'))[0], 0, 'directory of the cluster, --force: exit status');
ok(-d "$data/pg_twophase", 'directory of the cluster, --force: it stays');
is(traces(), '', 'directory of the cluster, --force: no trace in the data directory');
dropped('directory of the cluster, then the pool', qr/^pool: +\Q$root\E\/top\/rec\/pool\n/m, '--force');
set_directory($node, undef);

# Only init, in any case.
my ($no_rc, undef, $no_err) = pcache($node, 'drop', '--size' => '1MB');
is($no_rc, 1, 'option of another verb: exit status');
like($no_err, qr/error: option --size can only be used with "init"\n/, 'option of another verb: message');

# Interrupted at each step, and run again; or the server is started in between.
SKIP:
{
	skip 'injection points are not supported by this build', 1
	  if ($ENV{enable_injection_points} // '') ne 'yes';

	# step, what is left in directory and data directory, and how a server
	# starts then
	my @steps = (
		[ 'init-created', 'pool.old pool', 'pg_pcache.state' ],
		[ 'drop-leftovers', 'pool', 'pg_pcache.state', 'warm' ],
		[ 'drop-pool', '', 'pg_pcache.state', qr/^the pool was lost with its tmpfs file system, and was created again$/ ],
		[ 'drop-directory', undef, 'pg_pcache.state', qr/^the pool was lost with its tmpfs file system, and was created again$/ ],
		[ 'drop-record', undef, '', qr/^the pool was created by this start$/ ]);
	for my $again ('drop', 'start', 'drop, no setting', 'start, no setting')
	{
		for my $case (@steps)
		{
			my ($step, $left, $traces, $outcome) = @$case;
			my $setting = $again !~ /no setting/;
			my $starts = $again =~ /start/;
			my $name = "killed at $step, then $again";
			my $valid;

			next if $starts && !defined $outcome;
			next if !$starts && $step eq 'drop-record';
			$outcome = 'fails' if !$setting && $step eq 'drop-record';
			add_pool($node, directory => "$root/top/kill", size => '16MB', setting => $setting);
			if ($step eq 'drop-leftovers' && $starts)
			{
				$node->start;
				warm_up($node);
				$valid = valid_buffers($node);
				$node->stop;
			}
			set_mode($node, undef);
			{
				local $ENV{PG_PCACHE_KILL_AT} = $step;
				my @verb = $step =~ /^init/ ? ('init', '--force', '--size' => '16MB') : ('drop');
				is((pcache($node, @verb))[0], -9, "$name: killed");
			}
			is(join(' ', sort { $b cmp $a } map { s/.*\///r } glob "$root/top/kill/*"), join(' ', sort { $b cmp $a } split / /, $left // ''), "$name: files in the pool's directory");
			is(!!-d "$root/top/kill", defined $left, "$name: the directory");
			is(traces(), $traces, "$name: in the data directory");
			if ($starts)
			{
				set_mode($node, 'planned_restart');
				if ($outcome eq 'fails')
				{
					start_fails($node, qr/FATAL:  could not open persistent cache pool ".*": No such file or directory\n.*HINT:  Run "pg_pcache init"/, $name);
				}
				else
				{
					my $from = log_offset($node);
					$node->start;
					if ($outcome eq 'warm') { is_warm($node, $from, $valid, $name); }
					else { is_cold($node, $from, $outcome, $name); }
					restart_warm($node, "$name, restarted");
					$node->stop;
				}
				set_mode($node, undef);
			}
			if ($step =~ /^init/)
			{
				refused($name, qr/detail: The pool that the data directory has a record of is another one/, $node, [], "$root/top/kill");
				dropped($name, qr/^pool: .*\nleftover: +\Q$root\E\/top\/kill\/pool\.old$/m, '--force');
			}
			else
			{
				dropped($name, $starts && $outcome eq 'fails' ? qr/^There is nothing to drop: / : qr/^This was removed:\n/);
			}
			ok(!-e "$root/top/kill", "$name: no directory is left");
			dropped("$name, and once more", qr/^There is nothing to drop: /);
		}
	}
}
# On persistent memory, what is removed is overwritten first.  In memory it is not.
for my $forced (1, 0)
{
	local $ENV{PMEM_IS_PMEM_FORCE} = $forced;
	my $name = $forced ? 'persistent memory' : 'memory';

	for my $step ('', $forced ? 'drop-renamed' : ())
	{
		my $at = $name . ($step && ", killed at $step");
		my ($size, $before, $held);

		add_pool($node, directory => "$root/top/pmem", size => '16MB');
		$node->start;
		warm_up($node);
		$node->stop;
		$size = -s "$root/top/pmem/pool";
		($rc, $out, $err) = pcache($node, 'drop', '--dry-run');
		is(($out =~ /^overwritten: +(.*)$/m)[0] // 'nothing', $forced ? sprintf('%.2f MB', $size / 1024 ** 2) : 'nothing', "$at, --dry-run: says what is overwritten");
		is(verify_json($node)->{rc}, 0, "$at, --dry-run: the next start will still be warm");
		set_mode($node, undef);

		# a descriptor shows what is left of a file that was removed
		open $held, '<:raw', "$root/top/pmem/pool" or die $!;
		if ($step)
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			is((pcache($node, 'drop'))[0], -9, "$at: killed");
			is(contents("$root/top/pmem"), "pool.old:$size", "$at: no server takes that for a pool");
			is(traces(), 'pg_pcache.state', "$at: the record still says where it is");
		}
		($rc, $out, $err) = pcache($node, 'drop', '--json', '--progress');
		is($rc, 0, "$at: exit status");
		is(decode_json($out)->{overwritten}, $forced ? $size : 0, "$at: says how much was overwritten");
		like($err, $forced ? qr/^\d+\/\d+ MB \(100%\) done$/m : qr/^$/, "$at: progress");
		ok(!-e "$root/top/pmem", "$at: no directory is left");
		is(traces(), '', "$at: no trace in the data directory");
		is(read($held, $before, $size), $size, "$at: all of the file that was removed can be read");
		is($before =~ tr/\0//c ? 'data' : 'zeros', $forced ? 'zeros' : 'data', "$at: is all that is in it");
		close $held;
	}
}
is(contents($root), 'top:' . -s "$root/top", 'nothing is left where the pools were');
$node->start;
is(checksums($node), $expected, 'the data files are as they were');
$node->stop;
done_testing();
