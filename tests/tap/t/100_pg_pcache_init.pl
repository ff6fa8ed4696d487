
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache's options, and pg_pcache init.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use IPC::Run qw();
use JSON::PP qw(decode_json);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

program_help_ok('pg_pcache');
program_version_ok('pg_pcache');
program_options_handling_ok('pg_pcache');

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'shared_buffers = 16MB');
my $data = $node->data_dir;
my $root = pool_root();
my $tmp = PostgreSQL::Test::Utils::tempdir();
my $usage = qr/pg_pcache: hint: Try "pg_pcache --help" for more information\.\n$/;

# Fails with exit status 1, the message given, and no word on stdout.
sub refused
{
	my ($name, $message, @args) = @_;
	my ($rc, $out, $err) = command_output(@args);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, $message, "$name: message");
	return;
}

sub command_output
{
	my (@args) = @_;
	my ($out, $err);

	note('running: pg_pcache ', join ' ', @args);
	IPC::Run::run([ 'pg_pcache', @args ], '<' => \undef, '>' => \$out, '2>' => \$err);
	return ($? >> 8, $out, $err);
}

# Everything in the data directory that the cache could have made, or changed.
sub traces
{
	return join ' ', map {
		s{^\Q$data\E/}{}r . (-l $_ ? ' -> ' . readlink $_ : -d _ ? '/' : ':' . (-s _))
	} sort glob "$data/pg_pcache*";
}

# The command line.
{
	local %ENV = %ENV;
	delete $ENV{PGDATA};
	$ENV{PG_CLUSTER_CONF_ROOT} = "$tmp/none";
	refused('no data directory', qr/^pg_pcache: error: no data directory specified\n$usage/, 'init');
	$ENV{PGDATA} = '';
	refused('empty PGDATA', qr/^pg_pcache: error: no data directory specified\n$usage/, 'init');
	$ENV{PGDATA} = $data;
	my ($rc, $out) = command_output('init', '--dry-run', '--size' => '1MB', '--directory' => "$root/env");
	is($rc, 0, 'PGDATA is used');
}
refused('unknown verb', qr/^pg_pcache: error: unrecognized verb "rebuild-all"\n$usage/, '-D' => $data, 'rebuild-all');
refused('verb in capitals', qr/^pg_pcache: error: unrecognized verb "INIT"\n/, '-D' => $data, 'INIT');
refused('two verbs', qr/^pg_pcache: error: too many command-line arguments \(first is "status"\)\n$usage/,
	'-D' => $data, 'init', 'status');
refused('unknown option', qr/unrecognized option '--frobnicate'\n$usage/, '-D' => $data, '--frobnicate');
refused('option without its argument', qr/option '--size' requires an argument\n$usage/, '-D' => $data, 'init', '--size');
for my $verb (qw(status verify))
{
	for my $option ([ '--size', '1MB' ], ['--dry-run'], ['--force'])
	{
		refused("$option->[0] with $verb",
			qr/^pg_pcache: error: option $option->[0] can only be used with (?:"init"|"drop", "init" or "rebuild"|"drop", "init", "load", "rebuild" or "save")\n$usage/,
			'-D' => $data, @$option, $verb);
	}
}

# The help of each verb has the options that it takes, and no others.
{
	my %verbs = map { $_ => (command_output($_, '--help'))[1] } qw(drop init rebuild status verify);
	my %options = map { $_ => 1 } map { /^ +(?:-\w, )?--([a-z-]+)/mg } values %verbs;
	my ($rc, $all, $err) = command_output('--help');

	unlike($all, qr/\@|postgresql\.org/, 'the help sends nobody to PostgreSQL');
	for my $verb (sort keys %verbs)
	{
		like($verbs{$verb}, qr/^Usage:\n  pg_pcache \[OPTION\]\.\.\. $verb\n\n  $verb  /, "$verb --help: usage");
		is($verbs{$verb}, (command_output('-D' => '/none', $_, $verb))[1], "$verb --help: $_ before the verb") for '--help', '-?';
		for my $option (sort grep { !/^(?:help|version)$/ } keys %options)
		{
			my $shown = $verbs{$verb} =~ /^ +(?:-\w, )?--$option\b/m;
			my $needs_value = $all =~ /--$option=/ && $option ne 'relations';
			my (undef, undef, $message) = command_output('-D' => '/none', $verb, "--$option" . ($needs_value ? '=1' : ''));

			is($message !~ /can only be used with "|cannot be used with "/, $shown, "$verb --help: shows --$option if it can be used");
		}
	}
	is((command_output('rebuild-all', '--help'))[0], 1, 'help of an unknown verb: refused');
	is((command_output('--help', 'no'))[1], $all, 'help of everything, whatever follows');
}

# The data directory.
append_to_file("$tmp/file", 'x');
mkdir "$tmp/empty";
for my $verb (qw(init status verify))
{
	refused("$verb: missing data directory",
		qr/^pg_pcache: error: could not access directory "\Q$tmp\E\/none": No such file or directory\n/,
		'-D' => "$tmp/none", $verb);
	refused("$verb: data directory is a file",
		qr/^pg_pcache: error: "\Q$tmp\E\/file" is not a directory\n/, '-D' => "$tmp/file", $verb);
	refused("$verb: not a cluster",
		$verb eq 'status' ? qr/^pg_pcache: error: directory "\Q$tmp\E\/empty" is not a database cluster directory\n/
		: qr/^pg_pcache: error: could not open file "\Q$tmp\E\/empty\/global\/pg_control" for reading: No such file or directory\n/,
		'-D' => "$tmp/empty", $verb);
}

# Sizes.
for my $case (
	[ '16', qr/missing unit in value "16" for option --size\n.*hint: Valid units for this parameter are "kB", "MB", "GB", and "TB"\.\n/ ],
	[ '', qr/invalid value "" for option --size\n/ ],
	[ 'MB', qr/invalid value "MB" for option --size\n/ ],
	[ 'many', qr/invalid value "many" for option --size\n/ ],
	[ '-16MB', qr/invalid value "-16MB" for option --size\n/ ],
	[ '+16MB', qr/invalid value "\+16MB" for option --size\n/ ],
	[ '0x10MB', qr/invalid (?:value|unit in value) "0x10MB" for option --size\n/ ],
	[ '1e3MB', qr/invalid (?:value|unit in value) "1e3MB" for option --size\n/ ],
	[ 'infMB', qr/invalid value "infMB" for option --size\n/ ],
	[ '1..5MB', qr/invalid value "1\.\.5MB" for option --size\n/ ],
	[ '16XB', qr/invalid unit in value "16XB" for option --size\n/ ],
	[ '16mb', qr/invalid unit in value "16mb" for option --size\n/ ],
	[ '16Mb', qr/invalid unit in value "16Mb" for option --size\n/ ],
	[ '16KB', qr/invalid unit in value "16KB" for option --size\n/ ],
	[ '16B', qr/invalid unit in value "16B" for option --size\n/ ],
	[ '16 MB MB', qr/invalid unit in value "16 MB MB" for option --size\n/ ],
	[ '0MB', qr/size "0MB" is out of range\n.*hint: The size must be between 128kB and \S+\.\n/ ],
	[ '120kB', qr/size "120kB" is out of range\n/ ],
	[ '9TB', qr/size "9TB" is out of range\n/ ],
	[ '99999999999999999999TB', qr/size "99999999999999999999TB" is out of range\n/ ],
	[ '1001kB', qr/size "1001kB" is not a multiple of the block size of 8192 bytes\n.*hint: The next larger size is 1008kB\.\n/ ],
	[ '1.0001MB', qr/size "1\.0001MB" is not a multiple of the block size of 8192 bytes\n.*hint: The next larger size is 1032kB\.\n/ ],
	[ '7TB', qr/not enough space in ".*" for the persistent cache pool: \d+ MB needed, \d+ MB available\n.*hint: Choose a smaller size, or another directory\.\n/ ])
{
	my ($size, $message) = @$case;

	refused("--size '$size'", qr/^pg_pcache: error: $message/,
		'-D' => $data, 'init', '--directory' => "$root/main", '--size' => $size);
}

# Directories.
for my $case (
	[ 'relative', 'some/where', qr/persistent cache directory location must be an absolute path\n/ ],
	[ 'empty', '', qr/persistent cache directory location must be an absolute path\n/ ],
	[ 'inside the data directory', "$data/mine", qr/directory "\Q$data\E\/mine" is inside the data directory\n.*hint: Choose a directory outside, or leave out --directory\.\n/ ],
	[ 'inside, in disguise', "$data/../pgdata/./base", qr/is inside the data directory\n/ ],
	[ 'the data directory', $data, qr/is inside the data directory\n/ ],
	[ 'below a file', "$tmp/file/pool", qr/(?:Not a directory|is not a directory)/ ],
	[ 'too long', '/x' x 1000, qr/directory name ".*" is too long|File name too long/ ],
	[ 'with a newline', "$root/a\nb", qr/directory name ".*" contains a newline or carriage return character\n/s ])
{
	my ($name, $directory, $message) = @$case;

	refused("directory $name", qr/^pg_pcache: error: .*$message/s,
		'-D' => $data, 'init', '--size' => '1MB', '--directory' => $directory);
}
SKIP:
{
	skip 'root may write everywhere', 3 if $> == 0;
	mkdir "$tmp/readonly";
	chmod 0500, "$tmp/readonly";
	refused('directory not writable',
		qr/^pg_pcache: error: could not write to directory "\Q$tmp\E\/readonly": Permission denied\n/,
		'-D' => $data, 'init', '--size' => '1MB', '--directory' => "$tmp/readonly/pool");
	chmod 0700, "$tmp/readonly";
}
is(traces(), '', 'nothing of what was refused has left a trace in the data directory');
is_deeply([ glob "$root/*" ], [], 'nor where the pool would have been');

# PGDATA/pg_pcache in the way.
append_to_file("$data/pg_pcache", 'x');
refused('pg_pcache is a file', qr/^pg_pcache: error: .*pg_pcache.*(?:is not a directory|Not a directory)/,
	'-D' => $data, 'init', '--size' => '1MB', '--directory' => "$root/main");
unlink "$data/pg_pcache";
mkdir "$data/pg_pcache";
append_to_file("$data/pg_pcache/something", 'x');
refused('pg_pcache is not empty',
	qr/^pg_pcache: error: directory "\Q$data\E\/pg_pcache" exists but is not empty\n.*hint: Remove or empty it, because the server looks for a pool there first\.\n/,
	'-D' => $data, 'init', '--size' => '1MB', '--directory' => "$root/main");
unlink "$data/pg_pcache/something";
rmdir "$data/pg_pcache";
symlink "$root/elsewhere", "$data/pg_pcache";
refused('pg_pcache leads elsewhere',
	qr/^pg_pcache: error: "\Q$data\E\/pg_pcache" is not a directory\n.*hint: Remove or rename it\.\n/,
	'-D' => $data, 'init', '--size' => '1MB', '--directory' => "$root/main");
is(readlink "$data/pg_pcache", "$root/elsewhere", 'the link is still there');
unlink "$data/pg_pcache";

# A live server.
$node->start;
my $pid = (split /\n/, slurp_file("$data/postmaster.pid"))[0];
for my $verb ([ 'init', '--size' => '1MB', '--directory' => "$root/main" ], [ 'init', '--force' ], ['verify'])
{
	refused("@$verb[0 .. ($#$verb > 1 ? 1 : $#$verb)] with a live server",
		qr/^pg_pcache: error: cluster must be shut down\n.*detail: A server with PID $pid is running in data directory "\Q$data\E"\.\n/,
		'-D' => $data, @$verb);
}
$node->stop;
append_to_file("$data/postmaster.pid", '');
refused('empty lock file', qr/^pg_pcache: error: lock file ".*" is empty\n.*hint: /, '-D' => $data, 'init', '--size' => '1MB');
unlink "$data/postmaster.pid";
append_to_file("$data/postmaster.pid", "rubbish\n");
refused('rubbish in the lock file', qr/^pg_pcache: error: invalid data in PID file ".*"\n/, '-D' => $data, 'init', '--size' => '1MB');
unlink "$data/postmaster.pid";

# --dry-run
my ($rc, $out, $err) = pcache($node, 'init', '--dry-run', '--directory' => "$root/a/b/main");
is($rc, 0, '--dry-run: exit status');
is($err, '', '--dry-run: nothing on stderr');
like($out, qr/^Dry run: nothing was changed\.  This would be created:\n/, '--dry-run: says so');
like($out, qr/^pool: +\Q$root\E\/a\/b\/main\/pool$/m, '--dry-run: place');
like($out, qr/^capacity: +2048 blocks$/m, '--dry-run: size is shared_buffers by default');
like($out, qr/^file system: +tmpfs$/m, '--dry-run: file system');
unlike($out, qr/pool uuid/, '--dry-run: no UUID yet');
is(traces(), '', '--dry-run: nothing in the data directory');
ok(!-e "$root/a", '--dry-run: no directory was made');

# For good.  The default size is shared_buffers, which comes from wherever the
# server would take it.
($rc, $out, $err) = pcache($node, 'init', '--directory' => "$root/a/b/main/");
is($rc, 0, 'init: exit status');
is($err, '', 'init: nothing on stderr');
like($out, qr/^pool: +\Q$root\E\/a\/b\/main\/pool\nfile system: +tmpfs\ncapacity: +2048 blocks\ncached data: +16\.00 MB\nfile size: +20\.00 MB\nsystem identifier: +\d+\npool uuid: +[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\nhuge pages: +(?:yes|no)\n\n.*postgresql\.conf:\n\n    pcache.mode = planned_restart\n    pcache.directory = '\Q$root\E\/a\/b\/main'\n    shared_buffers = 16MB\n$/s,
	'init: output');
ok(!-l "$data/pg_pcache", 'init: no link, which tools that copy files would follow');
is((stat "$root/a/b/main/pool")[2] & 07777, 0600, 'init: mode of the pool');
is((stat "$root/a/b/main")[2] & 07777, 0700, 'init: mode of the directory');
is((stat "$data/pg_pcache.state")[2] & 07777, 0600, 'init: mode of the record');
ok(!-e "$root/a/b/main/pool.tmp", 'init: no temporary file is left');
cmp_ok((stat "$root/a/b/main/pool")[12] * 512, '>=', -s _, 'init: the pool is not sparse');
my $sb = read_superblock("$root/a/b/main/pool");
is($sb->{state}, STATE_EMPTY, 'init: state');
is($sb->{capacity}, 2048, 'init: capacity');
is($sb->{pool_size}, -s "$root/a/b/main/pool", 'init: size');
is($sb->{pg_major}, 18, 'init: version');
is(scalar(sealed_slots("$root/a/b/main/pool")), 0, 'init: no slot is used');

# Once more.
my $before = slurp_file("$root/a/b/main/pool");
refused('existing pool', qr/^pg_pcache: error: persistent cache pool "\Q$root\E\/a\/b\/main\/pool" already exists\n.*detail: It belongs to this cluster\.\n.*hint: Use --force to replace it, or choose another directory\.\n/,
	'-D' => $data, 'init', '--directory' => "$root/a/b/main");
refused('existing pool, found by the record', qr/already exists\n/, '-D' => $data, 'init');
refused('existing pool, other place', qr/^pg_pcache: error: the cluster has a persistent cache already, in directory "\Q$root\E\/a\/b\/main"\n.*hint: Use --force to replace it\.\n/,
	'-D' => $data, 'init', '--directory' => "$root/other");
ok(slurp_file("$root/a/b/main/pool") eq $before, 'existing pool: it was not touched');
ok(!-e "$root/other", 'existing pool, other place: nothing was made');

($rc, $out, $err) = pcache($node, 'init', '--force', '--dry-run', '--size' => '8MB');
is($rc, 0, '--force --dry-run: exit status');
like($out, qr/^Dry run: nothing was changed\.  This would be replaced:\n/, '--force --dry-run: says so');
ok(slurp_file("$root/a/b/main/pool") eq $before, '--force --dry-run: the pool was not touched');

# Locked, and foreign, pools.
open my $fh, '<', "$root/a/b/main/pool" or die $!;
flock $fh, LOCK_SH | LOCK_NB or die $!;
refused('locked pool, even with --force',
	qr/^pg_pcache: error: persistent cache pool ".*" is locked by another process\n.*hint: Is another server, or pg_pcache, using it\?\n/,
	'-D' => $data, 'init', '--force');
close $fh;
ok(slurp_file("$root/a/b/main/pool") eq $before, 'locked pool: it was not touched');

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(force_initdb => 1);
refused('foreign pool', qr/^pg_pcache: error: persistent cache pool ".*" already exists\n.*detail: It belongs to another cluster, with system identifier \d+; this one has \d+\.\n/,
	'-D' => $other->data_dir, 'init', '--size' => '1MB', '--directory' => "$root/a/b/main");
write_bytes("$root/a/b/main/pool", $_, "\0" x 16) for 0, COPY_OFFSET;
refused('damaged pool', qr/already exists\n.*detail: Its superblock is damaged, so the cluster it belongs to is not known\.\n/,
	'-D' => $other->data_dir, 'init', '--size' => '1MB', '--directory' => "$root/a/b/main");
write_bytes("$root/a/b/main/pool", 0, $before);

# A signal while init waits for somebody who creates a pool there: it removes
# nothing that is not its own.
{
	my $theirs = "$root/a/b/main/pool.tmp";

	append_to_file($theirs, 'theirs');
	chmod 0600, $theirs;
	open my $creator, '<', $theirs or die "$theirs: $!";
	flock $creator, LOCK_EX or die "$theirs: $!";
	my $init = IPC::Run::start([ 'pg_pcache', '-D' => $data, 'init', '--force' ], '<' => \undef, '>' => \my $stdout, '2>' => \my $stderr);
	sleep 1;
	$init->signal('TERM');
	$init->finish;
	is($? & 127, 15, 'signal while it waits: init dies of it');
	is(slurp_file($theirs), 'theirs', 'signal while it waits: what is not ours is there');
	ok(slurp_file("$root/a/b/main/pool") eq $before, 'signal while it waits: the pool was not touched');
	ok(!-e "$root/a/b/main/pool.old", 'signal while it waits: it has one name');
	unlink $theirs;
}

# --force
($rc, $out, $err) = pcache($node, 'init', '--force', '--json', '--size' => '12MB');
is($rc, 0, '--force: exit status');
my $json = decode_json($out);
ok($json->{replaced}, '--force: the pool was replaced');
is($json->{capacity}, 1536, '--force: new capacity');
is($json->{cached_data}, 12 * 1024 * 1024, '--force: new size');
is($json->{pool}, "$root/a/b/main/pool", '--force: same place');
isnt(read_superblock("$root/a/b/main/pool")->{pool_uuid}, $sb->{pool_uuid}, '--force: another UUID');
is($json->{settings}{shared_buffers}, '12MB', '--force: settings');

($rc, $out, $err) = pcache($node, 'init', '--force', '--size' => '0.5GB', '--directory' => "$root/other", '--dry-run');
like($out, qr/^cached data: +512\.00 MB$/m, '--size, --dry-run: size');
my $odd = "$root/\"odd\"\\\t\x01";
($rc, $out, $err) = pcache($node, 'init', '--force', '--size' => '12MB', '--directory' => $odd, '--dry-run', '--json');
is(decode_json($out)->{pool}, "$odd/pool", '--json: each character of a name');
($rc, $out, $err) = pcache($node, 'init', '--force', '--progress', '--size' => '8 MB', '--directory' => "$root/other");
is($rc, 0, '--force, another place: exit status');
like($err, qr/^pg_pcache: warning: the old pool "\Q$root\E\/a\/b\/main\/pool" is left behind\n.*hint: Remove it if no other cluster uses it\.$/m,
	'--force, another place: tells about the old one');
like($err, qr/^\d+\/\d+ MB \(100%\) done$/m, '--progress');
ok(-e "$root/a/b/main/pool", '--force, another place: the old one is still there');

# A damaged record.
truncate "$data/pg_pcache.state", 10;
refused('damaged record', qr/^pg_pcache: error: .*(?:already exists|is damaged)/, '-D' => $data, 'init');
is((pcache($node, 'init', '--force', '--directory' => "$root/other"))[0], 0, 'damaged record: --force');

# What was made can be used.
set_mode($node, 'planned_restart');
$node->adjust_conf('postgresql.conf', 'autovacuum', 'off');
$node->append_conf('postgresql.conf', 'autovacuum = off');
$node->start;
load_data($node, rows => 1000);
restart_warm($node, 'used');
$node->stop;

# --force is all or nothing: if it fails or is killed, the old pool is there.
my $old = slurp_file("$root/other/pool");
my $old_state = slurp_file("$data/pg_pcache.state");
sub old_pool_is_there
{
	my ($name) = @_;

	ok(slurp_file("$root/other/pool") eq $old, "$name: the old pool is untouched");
	is(slurp_file("$data/pg_pcache.state"), $old_state, "$name: so is the record");
	is_deeply([ map { s/.*\///r } glob "$root/other/*" ], ['pool'], "$name: nothing is left beside");
	is((pcache($node, 'verify'))[0], 0, "$name: the next start will be warm");
	return;
}
old_pool_is_there('before');
($rc, $out, $err) = ('', '', '');
IPC::Run::run([ 'sh', '-c', 'ulimit -f 1000; exec pg_pcache "$@"', 'sh', '-D' => $data, 'init', '--force', '--size' => '24MB' ],
	'>' => \$out, '2>' => \$err);
is($? >> 8, 1, 'no file as large as that: exit status');
like($err, qr/^pg_pcache: error: the persistent cache pool in "\Q$root\E\/other" needs a file of \d+ MB, but the limit on the size of files is 0 MB\n/, 'no file as large as that: message');
old_pool_is_there('no file as large as that');
SKIP:
{
	skip 'root may write everywhere', 7 if $> == 0;
	chmod 0500, $data;
	refused('record cannot be written', qr/^pg_pcache: error: could not create file "\Q$data\E\/pg_pcache\.state\.tmp": Permission denied\n/,
		'-D' => $data, 'init', '--force', '--size' => '16MB');
	refused('record cannot be written, other directory', qr/^pg_pcache: error: could not create file "\Q$data\E\/pg_pcache\.state\.tmp": Permission denied\n/m,
		'-D' => $data, 'init', '--force', '--size' => '16MB', '--directory' => "$root/third");
	chmod 0700, $data;
	old_pool_is_there('record cannot be written');
	ok(!-e "$root/third", 'record cannot be written: no directory is left');
}
SKIP:
{
	skip 'injection points are not supported by this build', 27
	  if ($ENV{enable_injection_points} // '') ne 'yes';
	local $ENV{PG_PCACHE_KILL_AT} = 'init-created';
	is((pcache($node, 'init', '--force', '--size' => '16MB'))[0], -9, 'killed');
	is((pcache($node, 'verify'))[0], 2, 'killed: cold, by the UUID');
	delete $ENV{PG_PCACHE_KILL_AT};
	is((pcache($node, 'init', '--force', '--size' => '16MB'))[0], 0, 'killed, and once more');
	is_deeply([ map { s/.*\///r } glob "$root/other/*" ], ['pool'], 'killed, and once more: nothing is left beside');

	# no room for both: in place
	local $ENV{PG_PCACHE_IN_PLACE} = 1;
	my $inode = (stat "$root/other/pool")[1];
	for my $size ('24MB', '8MB')
	{
		for my $step (qw(reset-allocated reset-marked reset-sized reset-formatted))
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			is((pcache($node, 'init', '--force', '--size' => $size))[0], -9, "in place, $size, killed at $step");
			is((pcache($node, 'verify'))[0] & ~2, 0,
				"in place, $size, killed at $step: the next start will be cold, or warm");
		}
		($rc, $out, $err) = pcache($node, 'init', '--force', '--size' => $size, '--json');
		is($rc, 0, "in place, $size: exit status");
		is((stat "$root/other/pool")[1], $inode, "in place, $size: the same file");
		is(-s _, decode_json($out)->{file_size}, "in place, $size: its size");
	}
	is((pcache($node, 'init', '--force', '--size' => '16MB'))[0], 0, 'in place, 16MB');
	$node->start;
	warm_up($node);
	$node->stop;
}

# A configuration that cannot be read gives no default size.
append_to_file("$data/postgresql.auto.conf", "no_such_setting = 1\n");
refused('unreadable configuration', qr/could not determine the size of the pool\n.*hint: Use option --size\.\n$/,
	'-D' => $data, 'init', '--force');
is((pcache($node, 'verify'))[0], 1, 'unreadable configuration: pg_pcache verify says that the server does not start');

done_testing();
