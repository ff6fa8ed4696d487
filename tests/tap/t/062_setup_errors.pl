
# Copyright (c) 2026, the persistent-cache developers

# What is wrong with the set-up keeps the server down, with a message that
# tells how to mend it, and costs nothing: mended, the next start is warm.

use strict;
use warnings FATAL => 'all';

use Fcntl qw(:flock);
use POSIX qw(WNOHANG);
use Time::HiRes qw(usleep);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Never initialized.
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
set_mode($new, 'planned_restart');
my $new_data = $new->data_dir;
start_fails(
	$new,
	qr/FATAL:  could not open persistent cache pool "\Q$new_data\E\/pg_pcache\/pool": No such file or directory\n.*HINT:  Run "pg_pcache init" to choose size and place of the persistent cache, set "persistent_cache_directory" to a directory on tmpfs, hugetlbfs or fsdax, or set "persistent_cache_mode" to "off"\./,
	'never initialized');
ok(!-e "$new_data/pg_pcache", 'never initialized: nothing was created');


# Not even a directory is enough.
set_mode($new, 'planned_restart');
mkdir "$new_data/pg_pcache", 0700;
start_fails($new, qr/HINT:  Run "pg_pcache init"/, 'an empty directory');
rmdir "$new_data/pg_pcache";

# initdb and single-user mode never need a pool.
command_ok(
	[ 'initdb', '--no-sync', '-A' => 'trust', '-c' => 'persistent_cache_mode=planned_restart', '-D' => "$new_data.2" ],
	'initdb with the cache configured');
ok(!-e "$new_data.2/pg_pcache", 'initdb makes no pool');
run_log([ 'postgres', '--single', '-D' => "$new_data.2", 'postgres' ],
	'<' => \"SELECT 1;\n", '>' => \my $out, '2>' => \my $err);
is($?, 0, 'single-user mode without a pool');

my $node = new_node('main');
my $pool = pool_file($node);
my $data = $node->data_dir;

$node->start;
load_data($node);
my $expected = checksums($node);
my $valid = warm_up($node);
$node->stop;

SKIP:
{
	skip 'root may read everything', 1 if $> == 0;
	chmod 0000, $pool;
	start_fails(
		$node,
		qr/FATAL:  could not open persistent cache pool ".*": Permission denied\n.*HINT:  The pool and its directory must belong to the user that owns the server process, and be writable for it\./,
		'mode 0000');
	chmod 0600, $pool;
	chmod 0000, pool_dir($node);
	start_fails($node,
		qr/FATAL:  could not open persistent cache pool ".*": Permission denied/,
		'mode 0000 of the directory');
	chmod 0700, pool_dir($node);
}

for my $mode (0666, 0660, 0604, 0602, 0610, 0601)
{
	my $name = sprintf 'mode %04o', $mode;

	chmod $mode, $pool;
	start_fails(
		$node,
		qr/FATAL:  persistent cache pool ".*" has invalid permissions\n.*HINT:  Permissions should be u=rw \(0600\)\./,
		$name);
	my ($rc, undef, $message) = pcache($node, 'verify');
	is($rc, 1, "$name: pg_pcache verify fails");
	like($message, qr/has invalid permissions/, "$name: pg_pcache verify says why");
	($rc, undef, $message) = pcache($node, 'status');
	is($rc, 1, "$name: pg_pcache status fails");
}
chmod 0600, $pool;

# Locked by another process, exclusively or not.
for my $lock (LOCK_EX, LOCK_SH)
{
	my $name = $lock == LOCK_EX ? 'locked' : 'locked for reading';

	open my $fh, '<', $pool or die $!;
	flock $fh, $lock | LOCK_NB or die $!;
	start_fails(
		$node,
		qr/FATAL:  persistent cache pool ".*" is locked by another process\n.*HINT:  Is another server, or pg_pcache, using it\?/,
		$name);
	my ($rc, undef, $message) = pcache($node, 'verify');
	is($rc, $lock == LOCK_EX ? 1 : 0, "$name: exit status of pg_pcache verify");
	like($message, $lock == LOCK_EX ? qr/is locked by another process/ : qr/^/,
		"$name: message of pg_pcache verify");
	is((pcache($node, 'status'))[0], 0, "$name: pg_pcache status needs no lock");
	close $fh;
}

# Who exits lets go of the lock a little later; that is waited for.
{
	my $holder = fork // die $!;
	if ($holder == 0)
	{
		open my $fh, '<', $pool or POSIX::_exit(1);
		flock $fh, LOCK_EX | LOCK_NB or POSIX::_exit(1);
		append_to_file("$pool.locked", '');
		sleep 2;
		POSIX::_exit(0);
	}
	usleep(10_000) until -e "$pool.locked" || waitpid($holder, WNOHANG) != 0;
	is((pcache($node, 'verify'))[0], 0, 'locked for a while: pg_pcache verify waits');
	waitpid $holder, 0;
	is($?, 0, 'locked for a while: by that process');
	unlink "$pool.locked";
}

# Two servers on one pool.
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', "shared_buffers = 16MB");
$other->append_conf('postgresql.conf', "persistent_cache_directory = '" . pool_dir($node) . "'");
set_mode($other, 'planned_restart');
my $offset = log_offset($node);
$node->start;
is_warm($node, $offset, $valid, 'mended');
start_fails($other, qr/FATAL:  persistent cache pool ".*" is locked by another process/,
	'pool of a running server');
is(checksums($node), $expected, 'pool of a running server: its contents are right');
$valid = warm_up($node);
$node->stop;

# Not a file.
rename $pool, "$pool.away" or die $!;
mkdir $pool or die $!;
start_fails($node, qr/FATAL:  could not open persistent cache pool ".*": Is a directory/,
	'a directory');
rmdir $pool;
system('mkfifo', '-m', '600', $pool) == 0 or die;
start_fails($node, qr/FATAL:  persistent cache pool ".*" is not a regular file/,
	'a named pipe');
unlink $pool;
rename "$pool.away", $pool or die $!;

# Where the directory may be.
for my $case (
	[ 'relative directory', 'somewhere/else',
		qr/invalid value for parameter "persistent_cache_directory": "somewhere\/else"\n.*DETAIL:  The directory must be an absolute path, or "pg_pcache"/ ],
	[ 'directory in the data directory', "$data/other",
		qr/FATAL:  persistent cache directory "\Q$data\E\/other" is inside the data directory\n.*HINT:  Set "persistent_cache_directory" to "pg_pcache", or to a directory outside\./ ],
	[ 'directory in the data directory, in disguise', "$data/base/../base",
		qr/invalid value for parameter "persistent_cache_directory": ".*"\n.*DETAIL:  The path must not contain "\.\."\./ ],
	[ 'the data directory', $data,
		qr/FATAL:  persistent cache directory ".*" is inside the data directory/ ])
{
	my ($name, $directory, $message) = @$case;

	$node->append_conf('postgresql.conf', "persistent_cache_directory = '$directory'");
	start_fails($node, $message, $name);
	$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', undef);
}

# None of that has cost a page, and the directory may be given by its name.
$node->append_conf('postgresql.conf',
	"persistent_cache_directory = '" . pool_dir($node) . "'");
$offset = log_offset($node);
$node->start;
is_warm($node, $offset, $valid, 'mended');
is(checksums($node), $expected, 'mended: contents are right');
$node->stop;

# Group access to the data directory is none to the pool.
my $group = new_node('group', init => { extra => ['--allow-group-access'] });
is((stat pool_file($group))[2] & 07777, 0600, 'group access: mode of the pool');
is((stat state_file($group))[2] & 07777, 0640, 'group access: mode of the record');
is((stat pool_dir($group))[2] & 07777, 0700, 'group access: mode of the directory');
$group->start;
load_data($group, rows => 1000);
restart_warm($group, 'group access');
$group->stop;
is((stat state_file($group))[2] & 07777, 0640,
	'group access: mode of the record that the server wrote');

done_testing();
