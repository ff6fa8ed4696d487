
# Copyright (c) 2026, the persistent-cache developers

# What an administrator trips over: the message names what is wrong, and the hint says what
# to do.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main');
my $pool = pool_file($node);
my $directory = pool_dir($node);
my $user = getpwuid($>) // $>;
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my $log;

$node->start;
load_tables($node);
warm_pages($node);
$node->stop;

# ---------------------------------------------------------------- the wrong owner
SKIP:
{
	skip 'root may use each directory', 14 if $> == 0;
	for my $case ([ '/etc', qr/HINT:  Is its file system mounted\?  [^\n]* give the directory to user \Q$user\E with chown\./ ],
		[ '/proc', qr/HINT:  A file system is mounted there\.  Mount a tmpfs or hugetlbfs with the option uid=\Q$user\E, / ])
	{
		my ($place, $hint) = @$case;
		my $wrong = qr/persistent cache directory "$place" has wrong ownership: it belongs to user root, and this process to user \Q$user\E/;

		$node->append_conf('postgresql.conf', "pcache.directory = '$place'");
		like((pcache($node, 'check'))[1], $wrong, "$place: check says whose it is");
		$log = start_without($node, $wrong, $place);
		like($log, $hint, "$place: the hint is about the cause");
		$node->stop;
	}
}
$node->append_conf('postgresql.conf', "pcache.directory = '$directory'");

done_testing();
