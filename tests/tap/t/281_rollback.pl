
# Copyright (c) 2026, the persistent-cache developers

# docs/rollback.md, step by step: back to stock PostgreSQL, and to this server
# again.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $stock = vanilla_install();
plan skip_all => 'PCACHE_VANILLA does not name an unpatched installation' if !defined $stock;

my $root = pool_root();
my $tmp = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', init => { allows_streaming => 1 }, conf => "persistent_cache_seal_delay = 20ms\n");
my $data = $node->data_dir;

# Run a program of an installation on a node; returns exit status, stdout, stderr.
sub program
{
	my ($install, $who, @command) = @_;

	return with_install($who, $install, sub {
		local %ENV = $who->_get_env();
		note('running: ', join ' ', @command);
		IPC::Run::run(\@command, '<' => \undef, '>' => \my $out, '2>' => \my $err);
		note($err) if $err ne '';
		return ($? >> 8, $out, $err);
	});
}

# A base backup by the stock server; returns what pg_basebackup says on stderr.
sub base_backup
{
	my ($name) = @_;
	my ($rc, undef, $err) = program($stock, $node, 'pg_basebackup', '-D' => "$tmp/$name", '-c' => 'fast', '--no-sync');

	is($rc, 0, "$name: pg_basebackup succeeds");
	return $err;
}

sub write_conf
{
	open my $fh, '>', "$data/postgresql.conf" or die $!;
	print $fh $_[0];
	close $fh;
	return;
}

sub start_stock
{
	my ($name) = @_;

	return with_install($node, $stock, sub {
		$node->start;
		is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name ~ 'persistent_cache'}),
			0, "$name: it is a stock server");
	});
}

# A cluster that uses all of it.
$node->start;
load_data($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION pg_pcache');
$node->safe_psql('postgres', q{ALTER SYSTEM SET persistent_cache_numa = 'off'});
restart_warm($node, 'before');
my $expected = checksums($node);

# 1. The extension.  A dump with it cannot be restored into stock.
my ($rc, $dump, $err) = program(undef, $node, 'pg_dump', 'other');
like($dump, qr/^CREATE EXTENSION IF NOT EXISTS pg_pcache /m, 'with the extension: it is in a dump');
$node->safe_psql($_, 'DROP EXTENSION pg_pcache') for qw(postgres other);
($rc, $dump, $err) = program(undef, $node, 'pg_dump', 'other');
unlike($dump, qr/pg_pcache/, 'without the extension: nothing of it is in a dump');

# 2. The settings: the query of the guide finds them all.
my $guide = slurp_file("$ENV{PCACHE_ROOT}/docs/rollback.md");
my ($query) = $guide =~ /^(    SELECT name.*?;)$/ms;
my $found = $node->safe_psql('postgres', $query);
like($found, qr/^persistent_cache_mode\|planned_restart\|.*\/postgresql\.conf\|\d+$/m, 'the query finds a setting in postgresql.conf');
like($found, qr/^persistent_cache_seal_delay\|20ms\|/m, 'the query finds another one');
unlike($found, qr/numa/, 'the query leaves out what ALTER SYSTEM has written, with a dot');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
$node->stop;
with_install($node, $stock, sub {
	ok(!$node->start(fail_ok => 1), 'settings left: a stock server does not start');
	like(slurp_file($node->logfile), qr/unrecognized configuration parameter "persistent_cache_mode"/, 'settings left: and says why');
});

# In an emergency: the command of the guide does so with all that is in the files,
# after a crash, too.
my $conf = slurp_file("$data/postgresql.conf");
my ($sed) = $guide =~ /^    (sed -i.*) FILES$/m;
ok(defined $sed, 'emergency: the guide has a command');
$node->append_conf('postgresql.conf', "  persistent_cache_scrub='on'\nio_lifetime_hints = on\nwal_sync_method = 'open_direct'\nrecovery_prefetch read");
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION pg_pcache; ALTER SYSTEM SET recovery_prefetch = 'read'});
$node->stop('immediate');
$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
is(system("$sed '$data/postgresql.conf' '$data/postgresql.auto.conf'"), 0, 'emergency: the command succeeds');
start_stock('emergency');
is(checksums($node), $expected, 'emergency: contents are right');
is($node->safe_psql('postgres', 'DROP EXTENSION pg_pcache'), '', 'emergency: a stock server drops the extension');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
with_install($node, $stock, sub { $node->stop });
write_conf($conf);

# The names with a dot may stay, and the query does not ask for them to go.
(my $dotted = $conf) =~ s/^persistent_cache_/pcache./mg;
isnt($dotted, $conf, 'names with a dot: there are settings');
write_conf($dotted);
$node->start;
is($node->safe_psql('postgres', $query), '', 'names with a dot: the query finds none of them');
$node->stop;
start_stock('names with a dot');
is(checksums($node), $expected, 'names with a dot: a stock server starts, and contents are right');
with_install($node, $stock, sub { $node->stop });
write_conf($conf);
set_mode($node, undef);
$node->adjust_conf('postgresql.conf', 'persistent_cache_seal_delay', undef);

# Without step 4 a stock server works as well, but for what the guide says.
start_stock('pool left');
is(checksums($node), $expected, 'pool left: contents are right');
is(base_backup('pool left'), '', 'pool left: pg_basebackup has nothing to say');
ok(-e "$tmp/pool left/pg_pcache.state", 'pool left: but copies the record');
$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 10 = 0');
$expected = checksums($node);
with_install($node, $stock, sub { $node->stop });

# Coming back with the pool that was left.
my $moved_on = qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/;
set_mode($node, 'planned_restart');
my $offset = log_offset($node);
$node->start;
is_cold($node, $offset, $moved_on, 'back with the pool that was left');
is(checksums($node), $expected, 'back with the pool that was left: contents are right');
restart_warm($node, 'back with the pool that was left, restarted');
$node->stop;
set_mode($node, undef);
with_install($node, $stock, sub { $node->start; $node->stop('immediate') });
$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
set_mode($node, 'planned_restart');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the cluster was run without the pool, and not shut down cleanly$/, 'back after a crash of the stock server');
is(checksums($node), $expected, 'back after a crash of the stock server: contents are right');
$node->safe_psql('postgres', 'INSERT INTO t_heap SELECT * FROM t_heap WHERE false; UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 0');
$expected = checksums($node);
$node->stop;

# 3. and 4.
set_mode($node, undef);
is((pcache($node, 'drop', '--dry-run'))[0], 0, 'pg_pcache drop --dry-run');
ok(-e pool_file($node), 'pg_pcache drop --dry-run: the pool is there');
($rc, undef, $err) = pcache($node, 'drop');
is("$rc $err", '0 ', 'pg_pcache drop');
is_deeply([ grep { /pcache/ } slurp_dir($data) ], [], 'nothing of the cache is in the data directory');
is_deeply([ glob "$root/*" ], [], 'and nothing where the pool was');

# 5. The stock server, and how to see that all is well.
start_stock('stock');
is(checksums($node), $expected, 'stock: contents are right');
is(join(' ', program($stock, $node, 'pg_amcheck', '--all', '--install-missing', '--no-password')), '0  ', 'stock: pg_amcheck has nothing to say');
is(base_backup('stock'), '', 'stock: pg_basebackup has nothing to say');
is_deeply([ grep { /pcache/ } slurp_dir("$tmp/stock") ], [], 'stock: nothing of the cache is in the backup');
is((program($stock, $node, 'pg_verifybackup', "$tmp/stock"))[0], 0, 'stock: pg_verifybackup passes');
($rc, $dump, $err) = program($stock, $node, 'pg_dumpall', '-f' => "$tmp/everything.sql");
is("$rc $err", '0 ', 'stock: pg_dumpall');
my $tables = checksums($node, tables => [ data_tables($node) ]);
with_install($node, $stock, sub { $node->stop });

my $fresh = PostgreSQL::Test::Cluster->new('fresh');
with_install($fresh, $stock, sub {
	$fresh->init(force_initdb => 1);
	$fresh->start;
});
# initdb has made the role already
my $sql = slurp_file("$tmp/everything.sql") =~ s/^CREATE ROLE .*\n//mgr;
unlink "$tmp/everything.sql";
append_to_file("$tmp/everything.sql", $sql);
($rc, undef, $err) = program($stock, $fresh, 'psql', '-X', '-q', '-v' => 'ON_ERROR_STOP=1', '-f' => "$tmp/everything.sql", 'postgres');
is("$rc $err", '0 ', 'the dump can be restored into a stock server');
is(checksums($fresh, tables => [ data_tables($fresh) ]), $tables, 'the restored dump has the same contents');
with_install($fresh, $stock, sub { $fresh->stop });

# Coming back without a pool: by configuration, and with pg_pcache init.
$node->append_conf('postgresql.conf', "persistent_cache_directory = '$root/again'");
set_mode($node, 'planned_restart');
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was created by this start$/, 'back without a pool');
is(checksums($node), $expected, 'back without a pool: contents are right');
restart_warm($node, 'back without a pool, restarted');
$node->stop;
is((pcache($node, 'drop'))[0], 0, 'dropped once more');
$node->adjust_conf('postgresql.conf', 'persistent_cache_directory', undef);
add_pool($node);
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool is empty$/, 'back with pg_pcache init');
is(checksums($node), $expected, 'back with pg_pcache init: contents are right');
$node->stop;

# The guide has the messages that were seen.
for my $message ('the pool was created by this start', 'the pool is empty',
	'the pool was saved at checkpoint X, the last checkpoint of the cluster is at Y',
	'the cluster was run without the pool, and not shut down cleanly')
{
	ok(index($guide, "`$message`") >= 0, "the guide knows: $message");
}
done_testing();
