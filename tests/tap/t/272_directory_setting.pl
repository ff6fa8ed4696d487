
# Copyright (c) 2026, the persistent-cache developers

# persistent_cache_directory is checked when it is set, not at the next start.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $data = $node->data_dir;
$node->start;

my $relative = qr/DETAIL:  The directory must be an absolute path, or "pg_pcache", which stands for the directory of that name in the data directory\./;
my $parent = qr/DETAIL:  The path must not contain "\.\."\./;
my @wrong = (
	[ 'rel/../x', $parent ],
	[ '../x', $parent ],
	[ '..', $parent ],
	[ '/x/..', $parent ],
	[ '/x/../y', $parent ],
	[ 'pg_pcache/../x', $parent ],
	[ 'rel', $relative ],
	[ './rel', $relative ],
	[ 'pg_pcache2', $relative ],
	[ 'pg_pcache/x', $relative ],
	[ '', $relative ],
	[ '/' . 'x' x 1000, qr/DETAIL:  The path must be shorter than \d+ bytes\./ ]);

for my $case (@wrong)
{
	my ($value, $detail) = @$case;
	my $name = length $value > 50 ? 'a long one' : "\"$value\"";

	isnt($node->psql('postgres', "ALTER SYSTEM SET persistent_cache_directory = '$value'", stderr => \my $stderr),
		0, "ALTER SYSTEM: $name");
	like($stderr, qr/ERROR:  invalid value for parameter "persistent_cache_directory": "\Q$value\E"\n$detail/,
		"ALTER SYSTEM: $name: message");
}

# What is accepted is kept in canonical form.
for my $case ([ '/x/y', '/x/y' ], [ '//x///y/', '/x/y' ], [ '/x/./y', '/x/y' ],
	[ '/x/..y/z..', '/x/..y/z..' ], [ 'pg_pcache', 'pg_pcache' ], [ './pg_pcache/', 'pg_pcache' ])
{
	my ($value, $canonical) = @$case;

	$node->safe_psql('postgres', "ALTER SYSTEM SET persistent_cache_directory = '$value'");
	my ($out, $err) = run_command([ 'postgres', '-D' => $data, '-C' => 'persistent_cache_directory' ]);
	is($out, $canonical, "\"$value\" is accepted") or diag($err);
}
$node->safe_psql('postgres', 'ALTER SYSTEM RESET persistent_cache_directory');

# In a configuration file: told at reload, and by a start.
my $offset = log_offset($node);
$node->append_conf('postgresql.conf', "persistent_cache_directory = 'rel/../x'");
$node->reload;
ok( $node->wait_for_log(qr/invalid value for parameter "persistent_cache_directory": "rel\/\.\.\/x"\n.*$parent/, $offset),
	'reload: told');
$node->stop;
start_fails($node, qr/invalid value for parameter "persistent_cache_directory": "rel\/\.\.\/x"\n.*$parent/, 'start');
my ($rc, undef, $err) = pcache($node, 'verify');
isnt($rc, 0, 'pg_pcache verify: does not promise a warm start');
unlike($err, qr/rel\/x|"x"/, 'pg_pcache verify: does not look elsewhere');
$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', undef);
$node->start;
$node->stop;
done_testing();
