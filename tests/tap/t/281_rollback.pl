
# Copyright (c) 2026, the persistent-cache developers

# docs/rollback.md, step by step: from the patched server back to stock PostgreSQL, and
# to the patched server again.

use strict;
use warnings FATAL => 'all';

use IPC::Run qw();
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $stock = vanilla_install();
plan skip_all => 'PCACHE_VANILLA does not name an unpatched installation' if !defined $stock;
plan skip_all => 'this is about the patched server' if !is_patched();

my $root = pool_root();
my $tmp = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', init => { allows_streaming => 1 });
my $data = $node->data_dir;
my ($rc, $dump, $err, $offset);

# The server loads the library by itself.  And the names that a stock one does not accept.
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);
$node->adjust_conf('postgresql.conf', 'pcache.mode', undef);
my $old_names = "persistent_cache_mode = planned_restart\npersistent_cache_required = on\n";
$node->append_conf('postgresql.conf', $old_names);

# Run a program of an installation on a node; returns exit status, stdout, stderr.
sub program
{
	my ($install, $who, @command) = @_;

	return with_install($who, $install, sub {
		local %ENV = $who->_get_env();
		note('running: ', join ' ', @command);
		IPC::Run::run(\@command, '<' => \undef, '>' => \my $out, '2>' => \my $stderr);
		note($stderr) if $stderr ne '';
		return ($? >> 8, $out, $stderr);
	});
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
		is($node->safe_psql('postgres', q{SELECT version() ~ 'pcache'}), 'f', "$name: it is a stock server");
	});
}
sub stop_stock { my ($how) = @_; return with_install($node, $stock, sub { $node->stop($how // 'fast') }) }

# A cluster that uses all of it.
$node->start;
load_data($node);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION pg_pcache');
restart_warm($node, 'before');
my $expected = checksums($node);

# 1. The extension.  A dump with it cannot be restored into stock.
($rc, $dump) = program(undef, $node, 'pg_dump', 'other');
like($dump, qr/^CREATE EXTENSION IF NOT EXISTS pg_pcache /m, 'with the extension: it is in a dump');
$node->safe_psql($_, 'DROP EXTENSION pg_pcache') for qw(postgres other);
($rc, $dump) = program(undef, $node, 'pg_dump', 'other');
unlike($dump, qr/pg_pcache/, 'without the extension: nothing of it is in a dump');

# 2. The settings: the query of the guide finds them all.
my $guide = slurp_file("$ENV{PCACHE_ROOT}/docs/rollback.md");
my ($query) = $guide =~ /^(    SELECT name.*?;)$/ms;
my $found = $node->safe_psql('postgres', $query);
like($found, qr/^persistent_cache_mode\|planned_restart\|.*\/postgresql\.conf\|\d+$/m, 'the query finds a setting in postgresql.conf');
unlike($found, qr/directory/, 'the query leaves out what has a dot');
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
$node->append_conf('postgresql.conf', "\tPersistent_Cache_Workers='2'\nIO_Lifetime_Hints = on\n\twal_sync_method\t=\t'open_direct'\nrecovery_prefetch read");
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION pg_pcache; ALTER SYSTEM SET recovery_prefetch = 'read'});
$node->stop('immediate');
$expected =~ s/^t_unlogged.*$/t_unlogged|0|0/m;
is(system("$sed '$data/postgresql.conf' '$data/postgresql.auto.conf'"), 0, 'emergency: the command succeeds');
start_stock('emergency');
is(checksums($node, tables => [LOGGED]), join("\n", grep { !/^t_(?:seq|unlogged)/ } split /\n/, $expected), 'emergency: contents are right');
is($node->safe_psql('postgres', 'DROP EXTENSION pg_pcache'), '', 'emergency: a stock server drops the extension');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
$expected = checksums($node);
stop_stock();

# Coming back with the pool that was left.
write_conf($conf);
$node->start;
restart_warm($node, 'back after an emergency');
$node->stop;
$conf =~ s/^persistent_cache_.*\n//mg;
for my $case (
	[ 'fast', qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/ ],
	[ 'immediate', qr/^the cluster was run without the pool, and not shut down cleanly$/ ])
{
	my ($how, $reason) = @$case;

	write_conf($conf);
	start_stock("pool left, stop $how");
	stop_stock($how);
	$node->append_conf('postgresql.conf', $old_names);
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, $reason, "back with the pool that was left, stop $how");
	is(checksums($node, tables => [LOGGED]), join("\n", grep { !/^t_(?:seq|unlogged)/ } split /\n/, $expected), "stop $how: contents are right");
	restart_warm($node, "stop $how, restarted");
	$node->stop;
}
write_conf($conf);

# 3. and 4.
is((pcache($node, 'drop', '--dry-run'))[0], 0, 'pg_pcache drop --dry-run');
ok(-e pool_file($node), 'pg_pcache drop --dry-run: the pool is there');
($rc, undef, $err) = pcache($node, 'drop');
is("$rc $err", '0 ', 'pg_pcache drop');
is_deeply([ grep { /pcache/ } slurp_dir($data) ], [], 'nothing of the cache is in the data directory');
is_deeply([ glob "$root/*/*" ], [], 'and nothing where the pool was, but its directory');

# 5. The stock server, and how to see that all is well.
start_stock('stock');
my $tables = checksums($node, tables => [LOGGED]);
is(join(' ', program($stock, $node, 'pg_amcheck', '--all', '--install-missing', '--no-password')), '0  ', 'stock: pg_amcheck has nothing to say');
is(join(' ', program($stock, $node, 'pg_basebackup', '-D' => "$tmp/backup", '-c' => 'fast', '--no-sync')), '0  ', 'stock: pg_basebackup has nothing to say');
($rc, undef, $err) = program($stock, $node, 'pg_dumpall', '-f' => "$tmp/everything.sql");
is("$rc $err", '0 ', 'stock: pg_dumpall');
stop_stock();
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
is(checksums($fresh, tables => [LOGGED]), $tables, 'the restored dump has the same contents');
with_install($fresh, $stock, sub { $fresh->stop });

# Coming back without a pool: by configuration, and with pg_pcache init.
$node->append_conf('postgresql.conf', $old_names);
for my $how ('by configuration', 'with pg_pcache init')
{
	is((pcache($node, 'init'))[0], 0, 'pg_pcache init') if $how ne 'by configuration';
	$offset = log_offset($node);
	$node->start;
	is_cold($node, $offset, $how eq 'by configuration' ? qr/^the pool was created by this start$/ : qr/^the pool is empty$/, "back $how");
	is(checksums($node, tables => [LOGGED]), $tables, "back $how: contents are right");
	restart_warm($node, "back $how, restarted");
	$node->stop;
	pcache($node, 'drop');
}

# The guide has the messages that were seen.
for my $message ('the pool was created by this start', 'the pool is empty',
	'the pool was saved at checkpoint X, the last checkpoint of the cluster is at Y',
	'the cluster was run without the pool, and not shut down cleanly')
{
	ok(index($guide, "`$message`") >= 0, "the guide knows: $message");
}

done_testing();
