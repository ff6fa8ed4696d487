
# Copyright (c) 2026, the persistent-cache developers

# Each setting persistent_cache_X can be written pcache.X, which a stock server
# accepts, too.  Both are one setting, wherever and in whichever order they are
# written: the last one wins, and a reload says only what has changed.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $stock = vanilla_install();
plan skip_all => 'PCACHE_VANILLA does not name an unpatched installation' if !defined $stock;

my $pool = pool_root() . '/main';
my $node = new_node('main', mode => undef, shared_buffers => '16MB');
my $data = $node->data_dir;
my $initial = slurp_file("$data/postgresql.conf");
my $dotted = "pcache.mode = planned_restart\npcache.directory = '$pool'\npcache.seal_delay = 20ms\n";

sub write_file
{
	my ($name, $text) = @_;
	open my $fh, '>', "$data/$name" or die $!;
	print $fh $text;
	close $fh;
	return;
}

# Replace the settings behind those of new_node(), and what ALTER SYSTEM has set.
sub set
{
	my ($conf, $auto) = @_;
	write_file('postgresql.conf', "$initial\n$conf");
	write_file('postgresql.auto.conf', $auto // '');
	return;
}

# What the server says of settings during a reload.
sub reload
{
	my $offset = log_offset($node);
	my $before = $node->safe_psql('postgres', 'SELECT pg_conf_load_time()');
	$node->reload;
	# a new session has the time from the postmaster, which has said all by then
	$node->poll_query_until('postgres', "SELECT pg_conf_load_time() > '$before'") or die;
	return join "\n", slurp_file($node->logfile, $offset) =~ /LOG:  ((?:.*parameter|configuration file) .*)/g;
}

# Start the server with options.  Node's start() takes none.
sub start_with
{
	my ($options) = @_;
	local %ENV = $node->_get_env(PGAPPNAME => undef);
	system_or_bail('pg_ctl', '--wait', '--pgdata' => $data, '--log' => $node->logfile, '--options' => $options, 'start');
	$node->_update_pid(1);
	return;
}

sub query { return $node->safe_psql('postgres', $_[0]) }
sub show { return join ' ', map { query("SHOW $_") } "persistent_cache_$_[0]", "pcache.$_[0]" }
sub auto { return join '', grep { /cache/i } split /^/m, slurp_file("$data/postgresql.auto.conf") }
sub one { my ($value) = @_; return "$value $value" }

# What the files say of a setting: value, applied, error.
sub file_settings
{
	return query("SELECT string_agg(concat_ws(' ', setting, applied, error), ', ' ORDER BY seqno) FROM pg_file_settings WHERE name ~ '[._]$_[0]\$'");
}

sub changed { my ($name, $value) = @_; return "parameter \"$name\" changed to \"$value\"" }

# Every setting has both names, and the sample the one with the dot.
set($dotted);
$node->start;
load_data($node, rows => 2000);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
my @names = split /\n/, query(q{SELECT substr(name, 18) FROM pg_settings WHERE name LIKE 'persistent\_cache\_%' ORDER BY 1});
cmp_ok(scalar @names, '>=', 7, 'there are settings of the cache: ' . join ' ', @names);
for my $name (@names)
{
	my $value = query("SHOW persistent_cache_$name");
	is(query("SHOW pcache.$name"), $value, "pcache.$name: SHOW");
	is(query("SELECT current_setting('pcache.$name')"), $value, "pcache.$name: current_setting()");
	my @printed = map { (run_command([ 'postgres', '-D' => $data, '-C' => $_ ]))[0] } "persistent_cache_$name", "pcache.$name";
	is($printed[1], $printed[0], "pcache.$name: postgres -C");
	like($initial, qr/^#pcache\.$name = /m, "pcache.$name: postgresql.conf.sample");
}
unlike($initial, qr/persistent_cache_/, 'postgresql.conf.sample has no other form');
is(show('mode'), one('planned_restart'), 'the dotted names count');
is(query(q{SELECT count(*) FROM pg_settings WHERE name ~ '^pcache'}), 0, 'pg_settings has one row for each');
is(query(q{SELECT DISTINCT sourcefile FROM pg_settings WHERE name IN ('persistent_cache_mode', 'persistent_cache_seal_delay')}),
	"$data/postgresql.conf", 'pg_settings tells where it comes from');
restart_warm($node, 'dotted names');
my $expected = checksums($node);

# What may not be set in a session cannot be set by either name.
for my $name (qw(persistent_cache_seal_delay pcache.seal_delay))
{
	my (undef, undef, $err) = $node->psql('postgres', "SET $name = '1s'");
	like($err, qr/ERROR:  parameter "persistent_cache_seal_delay" cannot be changed now/, "SET $name");
	local $ENV{PGOPTIONS} = "-c $name=1s";
	(undef, undef, $err) = $node->psql('postgres', 'SELECT 1');
	like($err, qr/FATAL:  parameter "persistent_cache_seal_delay" cannot be changed now/, "PGOPTIONS with $name");
}

# Both names in one file, in an included one, and in postgresql.auto.conf.
is(reload(), '', 'reload: nothing has changed');
for my $names ([qw(pcache. persistent_cache_)], [qw(persistent_cache_ pcache.)])
{
	my ($first, $last) = @$names;
	my $conf = "${first}mode = always\n${first}workers = 1\n${first}seal_delay = 20ms\n";
	my $all = "${first}directory = '$pool'\n${last}mode = planned_restart\n${last}workers = 2\n";

	set($conf, "$all${last}seal_delay = '30ms'\n");
	is(join(', ', grep { /seal_delay/ } split /\n/, reload()), changed("${last}seal_delay", '30ms'),
		"$first, then $last: reload tells of the change");
	$node->restart;
	is(show($_->[0]), one($_->[1]), "$first, then $last: $_->[0] after a restart")
	  for [ mode => 'planned_restart' ], [ workers => 2 ], [ seal_delay => '30ms' ];
	is(reload(), '', "$first, then $last: reload, nothing has changed");
	is(reload(), '', "$first, then $last: reload once more");
	is(query(q{SELECT count(*) FROM pg_settings WHERE pending_restart}), 0, "$first, then $last: nothing waits for a restart");
	is(file_settings('mode'), 'always f, planned_restart t', "$first, then $last: pg_file_settings, mode");
	is(file_settings('seal_delay'), '20ms f, 30ms t', "$first, then $last: pg_file_settings, seal_delay");

	# an included file, with what comes behind it
	write_file('more.conf', "${last}seal_delay = 31ms\n");
	set("$conf${last}mode = planned_restart\n${last}workers = 2\n${first}directory = '$pool'\ninclude 'more.conf'\n");
	is(reload(), changed("${last}seal_delay", '31ms'), "$first, then $last: the included file wins");
	append_to_file("$data/postgresql.conf", "${first}seal_delay = 32ms\n");
	is(reload(), changed("${first}seal_delay", '32ms'), "$first, then $last: but not over what comes behind it");
	is(reload(), '', "$first, then $last: included, nothing has changed");
	is(show('seal_delay'), one('32ms'), "$first, then $last: included, value");
	is(file_settings('seal_delay'), '20ms f, 31ms f, 32ms t', "$first, then $last: included, pg_file_settings");

	# the command line wins over files, and the last one there
	$node->stop;
	start_with("-c ${first}seal_delay=40ms -c ${last}seal_delay=41ms");
	is(show('seal_delay'), one('41ms'), "$first, then $last: command line");
	is(reload(), '', "$first, then $last: command line, nothing has changed");
	# a restart would give the options again
	$node->stop;
	$node->start;
}
set($dotted);
set("pcache.mode = nonsense\n$dotted", "persistent_cache_mode = 'planned_restart'\n");
$node->restart;
is(show('mode'), one('planned_restart'), 'a value that does not count is not looked at');
set($dotted);
is(reload(), '', 'nor does a reload speak of it');
append_to_file("$data/postgresql.conf", "pcache.workers = 2\n");
$node->restart;
set($dotted);
like(reload(), qr/^parameter "persistent_cache_workers" cannot be changed without restarting the server$/m, 'a reload tells of a setting that is gone');
$node->restart;

# ALTER SYSTEM writes the dotted name, and finds both.
for my $typed ('persistent_cache_seal_delay', 'pcache.seal_delay', '"PCACHE.Seal_Delay"', '"Persistent_Cache_SEAL_delay"')
{
	for my $there ('', "persistent_cache_seal_delay = '50ms'\n", "pcache.seal_delay = '50ms'\n", "persistent_cache_seal_delay = '1s'\nPcache.Seal_delay = '50ms'\n")
	{
		my $name = "ALTER SYSTEM, $typed over \"" . join(', ', split /\n/, $there) . '"';
		write_file('postgresql.auto.conf', $there);
		reload();
		query("ALTER SYSTEM SET $typed = '60ms'");
		is(auto(), "pcache.seal_delay = '60ms'\n", "$name: writes the dotted name");
		is(reload(), changed('pcache.seal_delay', '60ms'), "$name: is reloaded");
		is(show('seal_delay'), one('60ms'), "$name: value");
		is(file_settings('seal_delay'), '20ms f, 60ms t', "$name: pg_file_settings");
		is(reload(), '', "$name: nothing has changed");
		write_file('postgresql.auto.conf', $there);
		query("ALTER SYSTEM RESET $typed");
		is(auto(), '', "$name: RESET finds it");
		reload();
		is(show('seal_delay'), one('20ms'), "$name: RESET, value");
	}
}
my (undef, undef, $err) = $node->psql('postgres', q{ALTER SYSTEM SET pcache.mode = 'allways'});
like($err, qr/ERROR:  invalid value for parameter "persistent_cache_mode": "allways"/, 'ALTER SYSTEM looks at the value');
query(q{ALTER SYSTEM SET work_mem = '5MB'});
query(q{ALTER SYSTEM SET sort_mem = '6MB'});
like(slurp_file("$data/postgresql.auto.conf"), qr/^work_mem = '5MB'\nsort_mem = '6MB'$/m, 'ALTER SYSTEM leaves old names as they are');
query('ALTER SYSTEM RESET ALL');

# A mistyped name is not taken silently.
($err) = ($node->psql('postgres', q{ALTER SYSTEM SET pcache.mdoe = 'always'}))[2];
like($err, qr/ERROR:  invalid configuration parameter name "pcache\.mdoe"\n.*"pcache" is a reserved prefix/, 'mistyped: ALTER SYSTEM');
set("${dotted}pcache.mdoe = always\n");
my $offset = log_offset($node);
$node->restart;
like(slurp_file($node->logfile, $offset), qr/WARNING:  invalid configuration parameter name "pcache\.mdoe", removing it/, 'mistyped: the start warns');
like(reload(), qr/invalid configuration parameter name "pcache\.mdoe"/, 'mistyped: a reload tells');
set($dotted);

# pg_pcache and pg_pcache_next_start() know both.
for my $case ([ 'dotted', $dotted, '', 'warm' ],
	[ 'dotted, mode off', "${dotted}pcache.mode = off\n", '', 'off' ],
	[ 'off by the other name', "${dotted}persistent_cache_mode = off\n", '', 'off' ],
	[ 'off by the other name, in postgresql.auto.conf', $dotted, "persistent_cache_mode = 'off'\n", 'off' ],
	[ 'off, and on again by the other name', "persistent_cache_mode = off\n$dotted", '', 'warm' ],
	[ 'off, and on again in postgresql.auto.conf', "pcache.mode = off\npersistent_cache_directory = '$pool'\n", "PCache.Mode = 'planned_restart'\n", 'warm' ],
	[ 'another place', "persistent_cache_directory = '$pool'\n${dotted}pcache.directory = '$pool-2'\n", '', 'new' ])
{
	my ($name, $conf, $auto, $reason) = @$case;
	my $code = $reason eq 'warm' ? 0 : 2;

	set($conf, $auto);
	warm_up($node);
	is((pcache($node, 'check'))[0], $code, "$name: pg_pcache check");
	is(query('SELECT reason FROM pg_pcache_next_start()'), $reason, "$name: pg_pcache_next_start()");
}
set($dotted);
$node->stop;
is((pcache($node, 'verify'))[0], 0, 'pg_pcache verify, dotted');
set("$dotted\npcache.directory = '$pool-2'\npcache.size = 32MB");
my ($rc, $out) = pcache($node, 'init', '--dry-run', '--force');
is($rc, 0, 'pg_pcache init, dotted');
like($out, qr/^pool: +\Q$pool\E-2\/pool$/m, 'pg_pcache init, dotted: goes by the directory');
like($out, qr/^capacity: +4096 blocks$/m, 'pg_pcache init, dotted: goes by the size');
like($out, qr/^    pcache\.mode = planned_restart\n    pcache\.directory = '\Q$pool\E-2'\n/m, 'pg_pcache init, dotted: says what to set');
like((pcache($node, 'drop', '--dry-run'))[2], qr/warning: "persistent_cache_mode" is "planned_restart"/, 'pg_pcache drop, dotted: knows the mode');
set($dotted);

# A stock server takes the dotted names for settings of an extension.
with_install($node, $stock, sub {
	$node->start;
	is(show_stock(), 'planned_restart', 'stock: it starts, and keeps the settings');
	is(checksums($node), $expected, 'stock: contents are right');
	query('UPDATE t_heap SET grp = grp + 1 WHERE id % 10 = 0');
	$expected = checksums($node);
	query(q{ALTER SYSTEM SET pcache.numa = 'off'});
	query(q{ALTER DATABASE postgres SET pcache.seal_delay = '1s'});
	query(q{ALTER ROLE ALL SET pcache.mode = 'nonsense'});
	query(q{ALTER ROLE ALL IN DATABASE postgres SET pcache.something = 'else'});
	$node->stop;
});

sub show_stock
{
	return query(q{SELECT current_setting('pcache.mode') FROM (SELECT count(*) AS n FROM pg_settings WHERE name ~ '^persistent_cache') WHERE n = 0});
}

# What was set there costs a warning here.
$offset = log_offset($node);
start_with('-c pcache.something=else -c pcache.workers=1');
is_cold($node, $offset, qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/, 'back');
like(slurp_file($node->logfile, $offset), qr/WARNING:  invalid configuration parameter name "pcache\.something", removing it/, 'back: an unknown name on the command line');
is(checksums($node), $expected, 'back: contents are right');
is(show($_->[0]), one($_->[1]), "back: $_->[0]") for [ numa => 'off' ], [ workers => 1 ], [ seal_delay => '20ms' ], [ mode => 'planned_restart' ];
($rc, $out, $err) = $node->psql('postgres', 'SELECT 1');
is("$rc $out", '0 1', 'back: a session with settings of a database and of roles begins');
like($err, $_, "back: it gets a warning: $_")
  for qr/WARNING:  parameter "persistent_cache_mode" cannot be changed without restarting the server/,
  qr/WARNING:  parameter "persistent_cache_seal_delay" cannot be changed now/,
  qr/WARNING:  invalid configuration parameter name "pcache\.something"/;
unlike($err, qr/ERROR|FATAL/, 'back: and nothing worse');
query('ALTER DATABASE postgres RESET ALL');
query('ALTER ROLE ALL RESET ALL');
query('ALTER ROLE ALL IN DATABASE postgres RESET ALL');
is(($node->psql('postgres', 'SELECT 1'))[2], '', 'back: RESET ALL takes them away');
$node->restart;
restart_warm($node, 'back, restarted');
$node->stop;
done_testing();
