
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache's command line, and pg_pcache init: an option that a verb takes and its help does
# not have, a size or a directory that is taken and is none, an old pool that is lost when
# init --force fails or is killed.

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

my $node = new_node('main', mode => undef, shared_buffers => '16MB');
my $data = $node->data_dir;
my $root = pool_root();
my $pool = "$root/a/b/main/pool";
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

# ---------------------------------------------------------------- the command line
{
	local %ENV = %ENV;
	delete $ENV{PGDATA};
	$ENV{PG_CLUSTER_CONF_ROOT} = "$tmp/none";
	refused('no data directory', qr/^pg_pcache: error: no data directory specified\n$usage/, 'init');
	$ENV{PGDATA} = '';
	refused('empty PGDATA', qr/^pg_pcache: error: no data directory specified\n$usage/, 'init');
	$ENV{PGDATA} = $data;
	is((command_output('init', '--dry-run', '--size' => '1MB', '--directory' => "$root/env"))[0], 0, 'PGDATA is used');
	is((command_output('init', '--dry-run', '--siz' => '1MB', '--direct' => "$root/env"))[0], 0, 'the beginning of an option is enough');
}
refused('unknown verb', qr/^pg_pcache: error: unrecognized verb "rebuild-all"\n$usage/, '-D' => $data, 'rebuild-all');
refused('two verbs', qr/^pg_pcache: error: too many command-line arguments \(first is "status"\)\n$usage/, '-D' => $data, 'init', 'status');
refused('unknown option', qr/unrecognized option '--frobnicate'\n$usage/, '-D' => $data, '--frobnicate');
refused('option without its argument', qr/option '--size' requires an argument\n$usage/, '-D' => $data, 'init', '--size');

# The help of each verb has the options that it takes, and no others.
{
	my %verbs = map { $_ => (command_output($_, '--help'))[1] } qw(check drop init load rebuild save status verify);
	my %options = map { $_ => 1 } map { /^ +(?:-\w, )?--([a-z-]+)/mg } values %verbs;
	my ($rc, $all) = command_output('--help');

	unlike($all, qr/\@|postgresql\.org/, 'the help sends nobody to PostgreSQL');
	for my $verb (sort keys %verbs)
	{
		like($verbs{$verb}, qr/^Usage:\n  pg_pcache \[OPTION\]\.\.\. $verb\n\n  $verb  /, "$verb --help: usage");
		is($verbs{$verb}, (command_output('-D' => '/none', $_, $verb))[1], "$verb --help: $_ before the verb") for '--help', '-?';
		for my $option (sort grep { !/^(?:help|version)$/ } keys %options)
		{
			my $shown = $verbs{$verb} =~ /^ +(?:-\w, )?--$option\b/m;
			my $value = $all =~ /--$option=/ ? '=1' : '';
			my (undef, undef, $message) = command_output('-D' => '/none', $verb, "--$option$value");

			is($message !~ /can only be used with "|cannot be used with "/, $shown, "$verb --help: shows --$option if it can be used");
		}
	}
	is((command_output('rebuild-all', '--help'))[0], 1, 'help of an unknown verb: refused');
}

append_to_file("$tmp/file", 'x');
mkdir "$tmp/empty";
for my $verb (qw(init status verify))
{
	refused("$verb: missing data directory", qr/^pg_pcache: error: could not access directory "\Q$tmp\E\/none": No such file or directory\n/, '-D' => "$tmp/none", $verb);
	refused("$verb: data directory is a file", qr/^pg_pcache: error: "\Q$tmp\E\/file" is not a directory\n/, '-D' => "$tmp/file", $verb);
	refused("$verb: not a cluster", qr/^pg_pcache: error: .*"\Q$tmp\E\/empty/, '-D' => "$tmp/empty", $verb);
}

# ---------------------------------------------------------------- sizes
for my $case (
	(map { [ $_, qr/invalid value "\Q$_\E" for option --size\n.*hint: Valid units for this parameter are "kB", "MB", "GB", and "TB"\.\n/ ] }
		'', '16', 'MB', 'many', '-16MB', 'infMB', '1..5MB', '16XB', '16mb', '16KB', '16 MB MB'),
	[ '0MB', qr/size "0MB" is out of range\n.*hint: The size must be between 128kB and \S+\.\n/ ],
	(map { [ $_, qr/size "$_" is out of range\n/ ] } '16B', '120kB', '9TB', '99999999999999999999TB'),
	[ '7TB', qr/not enough space in ".*" for the persistent cache pool: \d+ MB needed, \d+ MB available\n.*hint: Choose a smaller size, or another directory\.\n/ ])
{
	my ($size, $message) = @$case;

	refused("--size '$size'", qr/^pg_pcache: error: $message/, '-D' => $data, 'init', '--directory' => "$root/main", '--size' => $size);
}

# ---------------------------------------------------------------- directories
refused('no directory', qr/^pg_pcache: error: "pcache\.directory" is not set\n.*hint: Set it to a directory on tmpfs/, '-D' => $data, 'init', '--size' => '1MB');
for my $case (
	[ 'relative', 'some/where', qr/persistent cache directory location must be an absolute path\n/ ],
	[ 'empty', '', qr/persistent cache directory location must be an absolute path\n/ ],
	[ 'inside the data directory', "$data/mine", qr/directory "\Q$data\E\/mine" is inside the data directory\n.*hint: Choose a directory outside\.\n/ ],
	[ 'inside, in disguise', "$data/../pgdata/./base", qr/is inside the data directory\n/ ],
	[ 'the data directory', $data, qr/is inside the data directory\n/ ],
	[ 'below a file', "$tmp/file/pool", qr/(?:Not a directory|is not a directory)/ ],
	[ 'too long', '/x' x 1000, qr/directory name ".*" is too long|File name too long/ ],
	[ 'with a newline', "$root/a\nb", qr/directory name ".*" contains a newline or carriage return character\n/s ])
{
	my ($name, $directory, $message) = @$case;

	refused("directory $name", qr/^pg_pcache: error: .*$message/s, '-D' => $data, 'init', '--size' => '1MB', '--directory' => $directory);
}
SKIP:
{
	skip 'root may write everywhere', 3 if $> == 0;
	mkdir "$tmp/readonly";
	chmod 0500, "$tmp/readonly";
	refused('directory not writable', qr/^pg_pcache: error: could not write to directory "\Q$tmp\E\/readonly": Permission denied\n/,
		'-D' => $data, 'init', '--size' => '1MB', '--directory' => "$tmp/readonly/pool");
	chmod 0700, "$tmp/readonly";
}
is_deeply([ glob("$root/*"), glob("$data/*pcache*") ], [], 'nothing of what was refused has left a trace');

# ---------------------------------------------------------------- a live server
$node->start;
my $pid = (split /\n/, slurp_file("$data/postmaster.pid"))[0];
for my $verb ([ 'init', '--size' => '1MB', '--directory' => "$root/main" ], ['verify'])
{
	refused("$verb->[0] with a live server", qr/^pg_pcache: error: cluster must be shut down\n.*detail: A server with PID $pid is running in data directory "\Q$data\E"\.\n/,
		'-D' => $data, @$verb);
}
$node->stop;
append_to_file("$data/postmaster.pid", '');
refused('empty lock file', qr/^pg_pcache: error: lock file ".*" is empty\n.*hint: /, '-D' => $data, 'init', '--size' => '1MB');
unlink "$data/postmaster.pid";
append_to_file("$data/postmaster.pid", "rubbish\n");
refused('rubbish in the lock file', qr/^pg_pcache: error: invalid data in PID file ".*"\n/, '-D' => $data, 'init', '--size' => '1MB');
unlink "$data/postmaster.pid";

# ---------------------------------------------------------------- a new pool
my ($rc, $out, $err) = pcache($node, 'init', '--dry-run', '--directory' => "$root/a/b/main");
is($rc, 0, '--dry-run: exit status');
is($err, '', '--dry-run: nothing on stderr');
like($out, qr/^Dry run: nothing was changed\.  This would be created:\n/, '--dry-run: says so');
like($out, qr/^pool: +\Q$pool\E\nfile system: +tmpfs\ncapacity: +2048 blocks$/m, '--dry-run: place and size, which is shared_buffers by default');
unlike($out, qr/pool uuid/, '--dry-run: no UUID yet');
ok(!-e "$root/a", '--dry-run: no directory was made');

($rc, $out, $err) = pcache($node, 'init', '--directory' => "$root/a/b/main/");
is($rc, 0, 'init: exit status');
is($err, '', 'init: nothing on stderr');
like($out, qr/^pool: +\Q$pool\E\nfile system: +tmpfs\ncapacity: +2048 blocks\ncached data: +16\.00 MB\nfile size: +22\.00 MB\nsystem identifier: +\d+\npool uuid: +[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\nhuge pages: +(?:yes|no)\n\n.*postgresql\.conf:\n\n    pcache.mode = planned_restart\n    pcache.directory = '\Q$root\E\/a\/b\/main'\n    shared_buffers = 16MB\n$/s,
	'init: output');
is((stat $pool)[2] & 07777, 0600, 'init: mode of the pool');
is((stat "$root/a/b/main")[2] & 07777, 0700, 'init: mode of the directory');
is_deeply([ glob "$root/a/b/main/*" ], [$pool], 'init: no temporary file is left');
is_deeply([ glob "$data/*pcache*" ], [], 'init: nothing in the data directory');
cmp_ok((stat $pool)[12] * 512, '>=', -s _, 'init: the pool is not sparse');
my $sb = read_superblock($pool);
is($sb->{format_version}, 3, 'init: format');
is($sb->{state}, STATE_EMPTY, 'init: state');
is($sb->{capacity}, 2048, 'init: capacity');
is($sb->{pool_size}, -s $pool, 'init: size');
is($sb->{pg_major}, major(), 'init: version');
is(scalar(sealed_slots($pool)), 0, 'init: no slot is used');

# ---------------------------------------------------------------- once more
my $before = slurp_file($pool);
refused('existing pool', qr/^pg_pcache: error: persistent cache pool "\Q$pool\E" already exists\n.*detail: It belongs to this cluster\.\n.*hint: Use --force to replace it, or choose another directory\.\n/,
	'-D' => $data, 'init', '--directory' => "$root/a/b/main");
set_directory($node, "$root/a/b/main");
refused('existing pool, found by the setting', qr/already exists\n/, '-D' => $data, 'init');
refused('another directory than that of the setting', qr/^pg_pcache: error: "pcache\.directory" is "\Q$root\E\/a\/b\/main", so the server would not use a pool in "\Q$root\E\/other"\n.*hint: Leave out --directory, or change the setting\.\n/,
	'-D' => $data, 'init', '--directory' => "$root/other");
ok(!-e "$root/other", 'another directory: nothing was made');
($rc, $out, $err) = pcache($node, 'init', '--force', '--dry-run', '--size' => '8MB');
is($rc, 0, '--force --dry-run: exit status');
like($out, qr/^Dry run: nothing was changed\.  This would be replaced:\n/, '--force --dry-run: says so');
open my $fh, '<', $pool or die $!;
flock $fh, LOCK_SH | LOCK_NB or die $!;
refused('locked pool, even with --force', qr/^pg_pcache: error: persistent cache pool ".*" is locked by another process\n.*hint: Is another server, or pg_pcache, using it\?\n/,
	'-D' => $data, 'init', '--force');
close $fh;

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(force_initdb => 1);
refused('foreign pool', qr/^pg_pcache: error: persistent cache pool ".*" already exists\n.*detail: It belongs to another cluster, with system identifier \d+; this one has \d+\.\n/,
	'-D' => $other->data_dir, 'init', '--size' => '1MB', '--directory' => "$root/a/b/main");
ok(slurp_file($pool) eq $before, 'existing pool: it was not touched');
write_bytes($pool, $_, "\0" x 16) for 0, COPY_OFFSET;
refused('damaged pool', qr/already exists\n.*detail: Its superblock is damaged, so the cluster it belongs to is not known\.\n/, '-D' => $data, 'init');
write_bytes($pool, 0, $before);

# A signal while init waits for somebody who creates a pool there: it removes
# nothing that is not its own.
{
	my $theirs = "$pool.tmp";

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
	ok(slurp_file($pool) eq $before, 'signal while it waits: the pool was not touched');
	unlink $theirs;
}

# ---------------------------------------------------------------- --force
($rc, $out, $err) = pcache($node, 'init', '--force', '--progress', '--json', '--size' => '12MB');
is($rc, 0, '--force: exit status');
like($err, qr/^\d+\/\d+ MB \(100%\) done$/m, '--progress');
my $json = decode_json($out);
ok($json->{replaced}, '--force: the pool was replaced');
is($json->{capacity}, 1536, '--force: new capacity');
is($json->{pool}, $pool, '--force: same place');
isnt(read_superblock($pool)->{pool_uuid}, $sb->{pool_uuid}, '--force: another UUID');
is($json->{settings}{shared_buffers}, '12MB', '--force: settings');
my $odd = "$root/\"odd\"\\\t\x01";
set_directory($node, undef);
($rc, $out, $err) = pcache($node, 'init', '--size' => '0.5GB', '--directory' => $odd, '--dry-run', '--json');
is(decode_json($out)->{pool}, "$odd/pool", '--json: each character of a name');
is(decode_json($out)->{cached_data}, 512 * 1024 * 1024, '--json: size');
set_directory($node, "$root/a/b/main");

# What was made can be used, and the server makes it larger.
set_mode($node, 'planned_restart');
$node->start;
load_data($node, rows => 1000);
restart_warm($node, 'used');
$node->stop;

# --force is all or nothing: if it fails, the old pool is there.
my $old = slurp_file($pool);
($out, $err) = ('', '');
IPC::Run::run([ 'sh', '-c', 'ulimit -f 1000; exec pg_pcache "$@"', 'sh', '-D' => $data, 'init', '--force', '--size' => '24MB' ],
	'>' => \$out, '2>' => \$err);
is($? >> 8, 1, 'no file as large as that: exit status');
like($err, qr/^pg_pcache: error: the persistent cache pool in "[^"]*" needs a file of \d+ MB, but the limit on the size of files is 0 MB\n/, 'no file as large as that: message');
ok(slurp_file($pool) eq $old, 'no file as large as that: the old pool is untouched');
is_deeply([ glob "$root/a/b/main/*" ], [$pool], 'no file as large as that: nothing is left beside');
is((pcache($node, 'verify'))[0], 0, 'no file as large as that: the next start will be warm');

SKIP:
{
	skip 'pg_pcache was built without steps to be killed at', 30 if !can_be_killed();
	local $ENV{PG_PCACHE_KILL_AT} = 'init-created';
	is((pcache($node, 'init', '--force', '--size' => '16MB'))[0], -9, 'killed');
	is((pcache($node, 'verify'))[0], 2, 'killed: cold');
	delete $ENV{PG_PCACHE_KILL_AT};
	is((pcache($node, 'init', '--force', '--size' => '16MB'))[0], 0, 'killed, and once more');
	is_deeply([ glob "$root/a/b/main/*" ], [$pool], 'killed, and once more: nothing is left beside');

	# no room for both: the old one gives its room back before, but not in a dry run
	local $ENV{PG_PCACHE_NO_ROOM_FOR_BOTH} = 1;
	for my $size ('24MB', '8MB')
	{
		patch_superblock($pool, state => STATE_CLEAN);
		is((pcache($node, 'init', '--force', '--size' => $size, '--dry-run'))[0], 0, "no room for both, $size: dry run");
		cmp_ok(-s $pool, '>', 4 << 20, "no room for both, $size: the old pool is as it was after a dry run");
		$ENV{PG_PCACHE_KILL_AT} = 'old-pool-shed';
		is((pcache($node, 'init', '--force', '--size' => $size))[0], -9, "no room for both, $size: killed");
		delete $ENV{PG_PCACHE_KILL_AT};
		is(-s $pool, 2 << 20, "no room for both, $size: the old pool gives its room back first");
		is(read_superblock($pool)->{state}, STATE_EMPTY, "no room for both, $size: ... and is empty");
		is((pcache($node, 'verify'))[0], 2, "no room for both, $size: the next start will be cold");
		($rc, $out, $err) = pcache($node, 'init', '--force', '--size' => $size, '--json');
		is($rc, 0, "no room for both, $size: exit status");
		is(-s $pool, decode_json($out)->{file_size}, "no room for both, $size: its size");
	}
	# what can fail fails before
	my $before = slurp_file($pool);
	is(system(qq{ulimit -f 8192; pg_pcache init --force --size=8MB -D "$data" 2>"$root/limit.err"}) >> 8, 1, 'a limit below the size that the pool has: exit status');
	like(slurp_file("$root/limit.err"), qr/needs a file of \d+ MB, but the limit on the size of files is 4 MB/, 'a limit below the size that the pool has: message');
	ok(slurp_file($pool) eq $before, 'a limit below the size that the pool has: nothing is lost');
}
$node->start;
restart_warm($node, 'whatever was killed');
$node->stop;

# A configuration that cannot be read tells nothing.
append_to_file("$data/postgresql.auto.conf", "no_such_setting = 1\n");
refused('unreadable configuration', qr/error: could not find out where the pool is: the server's configuration could not be read\n/, '-D' => $data, 'init', '--force');

done_testing();
