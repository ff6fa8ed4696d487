
# Copyright (c) 2026, the persistent-cache developers

# The patched server takes persistent_cache_X for pcache.X.  Both are one setting,
# wherever and in whichever order they are written: the last one wins, and a reload says
# only what has changed.  The library is loaded although nobody has said so, and with mode
# off, which is the default, there is no trace of it.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $stock = vanilla_install();
plan skip_all => 'PCACHE_VANILLA does not name an unpatched installation' if !defined $stock;
plan skip_all => 'this is about the patched server' if !is_patched();

my $node = new_node('main', mode => undef, libraries => '', shared_buffers => '16MB');
my $pool = pool_dir($node);
my $data = $node->data_dir;
my $initial = slurp_file("$data/postgresql.conf");
my $dotted = "pcache.mode = planned_restart\npcache.directory = '$pool'\npcache.worker_delay = 20ms\n";

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
sub changed { my ($name, $value) = @_; return "parameter \"$name\" changed to \"$value\"" }

# What the files say of a setting: value, applied, error.
sub file_settings
{
	return query("SELECT string_agg(concat_ws(' ', setting, applied, error), ', ' ORDER BY seqno) FROM pg_file_settings WHERE name ~ '[._]$_[0]\$'");
}

# Without a setting of ours.
$node->start;
is(show('mode'), one('off'), 'off is the default');
load_data($node, rows => 2000);
warm_up($node);
$node->restart;
is(cached_table_pages($node), 0, 'off: nothing is kept');
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'persistent.cache'}), 0, 'off: no worker');
$node->stop;
unlike(slurp_file($node->logfile), qr/persistent cache|pg_pcache/, 'off: no word in the log');
is_deeply([ glob "$data/*pcache*" ], [], 'off: no file in the data directory');

# Every setting has both names, and the sample the one with the dot.
set("persistent_cache_mode = planned_restart\npersistent_cache_directory = '$pool'\npersistent_cache_worker_delay = 20ms\n");
$node->start;
is(show('mode'), one('planned_restart'), 'the names with underscores count');
set($dotted);
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
is(query('SHOW shared_preload_libraries'), '', 'nobody has asked for the library');
my @names = split /\n/, query(q{SELECT substr(name, 8) FROM pg_settings WHERE name LIKE 'pcache.%' ORDER BY 1});
cmp_ok(scalar @names, '>=', 9, 'there are settings of the cache: ' . join ' ', @names);
for my $name (@names)
{
	is(query("SHOW persistent_cache_$name"), query("SHOW pcache.$name"), "persistent_cache_$name: SHOW");
	is(query("SELECT current_setting('persistent_cache_$name')"), query("SHOW pcache.$name"), "persistent_cache_$name: current_setting()");
	like($initial, qr/^#pcache\.$name = /m, "pcache.$name: postgresql.conf.sample") if $name ne 'allow_unknown_minor';
}
unlike($initial, qr/persistent_cache_/, 'postgresql.conf.sample has no other form');
is(query(q{SELECT count(*) FROM pg_settings WHERE name ~ '^persistent_cache'}), 0, 'pg_settings has one row for each');
is(query(q{SELECT DISTINCT sourcefile FROM pg_settings WHERE name IN ('pcache.mode', 'pcache.worker_delay')}),
	"$data/postgresql.conf", 'pg_settings tells where it comes from');
is((run_command([ 'postgres', '-D' => $data, '-C' => $_ ]))[0], 'planned_restart', "postgres -C $_") for qw(persistent_cache_mode pcache.mode);
restart_warm($node, 'dotted names');
my $expected = checksums($node);

# where somebody has named the library as on an unpatched server
set("${dotted}shared_preload_libraries = 'pg_pcache'\n");
restart_warm($node, 'preloaded twice');
set($dotted);
$node->restart;

# What may not be set in a session cannot be set by either name.
for my $name (qw(persistent_cache_worker_delay pcache.worker_delay))
{
	my (undef, undef, $err) = $node->psql('postgres', "SET $name = '1s'");
	like($err, qr/ERROR:  parameter "pcache\.worker_delay" cannot be changed now/, "SET $name");
	local $ENV{PGOPTIONS} = "-c $name=1s";
	# it is turned away, perhaps before it could read a query from a pipe
	(undef, $err) = run_command([ 'psql', '-XAt', '-c' => 'SELECT 1', '-d' => $node->connstr('postgres') ]);
	like($err, qr/FATAL:  parameter "pcache\.worker_delay" cannot be changed now/, "PGOPTIONS with $name");
}

# Both names in one file, in an included one, and on the command line.
is(reload(), '', 'reload: nothing has changed');
for my $names ([qw(pcache. persistent_cache_)], [qw(persistent_cache_ pcache.)])
{
	my ($first, $last) = @$names;
	my $conf = "${first}mode = always\n${first}workers = 1\n${first}worker_delay = 20ms\n";
	my $all = "${first}directory = '$pool'\n${last}mode = planned_restart\n${last}workers = 2\n";

	set($conf, "$all${last}worker_delay = '30ms'\n");
	is(join(', ', grep { /worker_delay/ } split /\n/, reload()), changed("${last}worker_delay", '30ms'),
		"$first, then $last: reload tells of the change");
	$node->restart;
	is(show($_->[0]), one($_->[1]), "$first, then $last: $_->[0] after a restart")
	  for [ mode => 'planned_restart' ], [ workers => 2 ], [ worker_delay => '30ms' ];
	is(reload(), '', "$first, then $last: reload, nothing has changed");
	is(query(q{SELECT count(*) FROM pg_settings WHERE pending_restart}), 0, "$first, then $last: nothing waits for a restart");
	is(file_settings('mode'), 'always f, planned_restart t', "$first, then $last: pg_file_settings, mode");

	# an included file, with what comes behind it
	write_file('more.conf', "${last}worker_delay = 31ms\n");
	set("$conf${last}mode = planned_restart\n${last}workers = 2\n${first}directory = '$pool'\ninclude 'more.conf'\n");
	is(reload(), changed("${last}worker_delay", '31ms'), "$first, then $last: the included file wins");
	append_to_file("$data/postgresql.conf", "${first}worker_delay = 32ms\n");
	is(reload(), changed("${first}worker_delay", '32ms'), "$first, then $last: but not over what comes behind it");
	is(show('worker_delay'), one('32ms'), "$first, then $last: included, value");
	is(file_settings('worker_delay'), '20ms f, 31ms f, 32ms t', "$first, then $last: included, pg_file_settings");

	# the command line wins over files, and the last one there
	$node->stop;
	start_with("-c ${first}worker_delay=40ms -c ${last}worker_delay=41ms");
	is(show('worker_delay'), one('41ms'), "$first, then $last: command line");
	is(reload(), '', "$first, then $last: command line, nothing has changed");
	# a restart would give the options again
	$node->stop;
	$node->start;
}
set("${dotted}pcache.workers = 2\n");
$node->restart;
set($dotted);
like(reload(), qr/^parameter "pcache\.workers" cannot be changed without restarting the server$/m, 'a reload tells of a setting that is gone');
$node->restart;

# ALTER SYSTEM writes the dotted name, and finds both.
for my $typed ('persistent_cache_worker_delay', '"PCACHE.Worker_Delay"')
{
	for my $there ('', "persistent_cache_worker_delay = '50ms'\n", "persistent_cache_worker_delay = '1s'\nPcache.Worker_delay = '50ms'\n")
	{
		my $name = "ALTER SYSTEM, $typed over \"" . join(', ', split /\n/, $there) . '"';

		write_file('postgresql.auto.conf', $there);
		reload();
		query("ALTER SYSTEM SET $typed = '60ms'");
		like(auto(), qr/\Apcache\.worker_delay = '60ms'\n\z/i, "$name: writes the dotted name");
		reload();
		is(show('worker_delay'), one('60ms'), "$name: value");
		is(file_settings('worker_delay'), '20ms f, 60ms t', "$name: pg_file_settings") if $typed !~ /PCACHE/;
		write_file('postgresql.auto.conf', $there);
		query("ALTER SYSTEM RESET $typed");
		is(auto(), '', "$name: RESET finds it");
		reload();
		is(show('worker_delay'), one('20ms'), "$name: RESET, value");
	}
}
my ($err) = ($node->psql('postgres', q{ALTER SYSTEM SET persistent_cache_mode = 'allways'}))[2];
like($err, qr/ERROR:  invalid value for parameter "[^"]*mode": "allways"/, 'ALTER SYSTEM looks at the value');
query(q{ALTER SYSTEM SET work_mem = '5MB'});
query(q{ALTER SYSTEM SET sort_mem = '6MB'});
like(slurp_file("$data/postgresql.auto.conf"), qr/^work_mem = '5MB'\nsort_mem = '6MB'$/m, 'ALTER SYSTEM leaves old names as they are');
query('ALTER SYSTEM RESET ALL');

# A mistyped name, and what 1.0.0 had, are warned of.
($err) = ($node->psql('postgres', q{ALTER SYSTEM SET pcache.mdoe = 'always'}))[2];
like($err, qr/ERROR:  invalid configuration parameter name "pcache\.mdoe"\n.*"pcache" is a reserved prefix/, 'mistyped: ALTER SYSTEM');
my $offset;
for my $case ([ 'pcache.mdoe = always', 'pcache\.mdoe' ], [ "persistent_cache_numa = 'off'\npersistent_cache_seal_delay = 50ms", 'pcache\.seal_delay' ])
{
	my ($line, $name) = @$case;

	set("$dotted$line\n");
	$offset = log_offset($node);
	$node->restart;
	like(slurp_file($node->logfile, $offset), qr/WARNING:  invalid configuration parameter name "$name", removing it/, "$line: the start warns");
	is(show('mode'), one('planned_restart'), "$line: and goes on");

	# whoever leaves it there can change other settings
	set("$dotted$line\nwork_mem = 7MB\n");
	like(reload(), qr/parameter name "$name".*parameter "work_mem" changed to "7MB".*unaffected changes were applied/s, "$line: a reload applies what is right");
}
set($dotted);
$node->restart;

# pg_pcache knows both.
for my $case ([ 'dotted', $dotted, '', 0 ],
	[ 'underscores', $dotted =~ s/^pcache\./persistent_cache_/mgr, '', 0 ],
	[ 'off by the other name', "${dotted}persistent_cache_mode = off\n", '', 2 ],
	[ 'off by the other name, in postgresql.auto.conf', $dotted, "persistent_cache_mode = 'off'\n", 2 ],
	[ 'off, and on again in postgresql.auto.conf', "pcache.mode = off\npersistent_cache_directory = '$pool'\n", "PCache.Mode = 'planned_restart'\n", 0 ],
	[ 'another place', "persistent_cache_directory = '$pool'\n${dotted}pcache.directory = '$pool-2'\n", '', 2 ])
{
	my ($name, $conf, $auto, $code) = @$case;

	set($conf, $auto);
	is((pcache($node, 'check'))[0], $code, "$name: pg_pcache check");
}
set($dotted);
warm_up($node);
$node->stop;
is((pcache($node, 'verify'))[0], 0, 'pg_pcache verify');

# A stock server takes the dotted names for settings of an extension.
with_install($node, $stock, sub {
	$node->start;
	is(query(q{SELECT current_setting('pcache.mode')}), 'planned_restart', 'stock: it starts, and keeps the settings');
	is(checksums($node), $expected, 'stock: contents are right');
	query(q{ALTER DATABASE postgres SET pcache.worker_delay = '1s'});
	query(q{ALTER ROLE ALL SET pcache.mode = 'nonsense'});
	query(q{ALTER ROLE ALL IN DATABASE postgres SET pcache.something = 'else'});
	$node->stop;
});

# What was set there costs a warning here.
$offset = log_offset($node);
start_with('-c pcache.something=else -c pcache.workers=1');
is_cold($node, $offset, qr/^the pool was saved at checkpoint \S+, the last checkpoint of the cluster is at \S+$/, 'back');
like(slurp_file($node->logfile, $offset), qr/WARNING:  invalid configuration parameter name "pcache\.something", removing it/, 'back: an unknown name on the command line');
is(show($_->[0]), one($_->[1]), "back: $_->[0]") for [ workers => 1 ], [ worker_delay => '20ms' ], [ mode => 'planned_restart' ];
my ($rc, $out);
($rc, $out, $err) = $node->psql('postgres', 'SELECT 1');
is("$rc $out", '0 1', 'back: a session with settings of a database and of roles begins');
like($err, qr/WARNING:  .*"pcache\.$_"/, "back: it gets a warning of $_") for qw(mode worker_delay something);
unlike($err, qr/ERROR|FATAL/, 'back: and nothing worse');
query('ALTER DATABASE postgres RESET ALL');
query('ALTER ROLE ALL RESET ALL');
query('ALTER ROLE ALL IN DATABASE postgres RESET ALL');
is(($node->psql('postgres', 'SELECT 1'))[2], '', 'back: RESET ALL takes them away');
is(checksums($node), $expected, 'back: contents are right');
$node->stop;

done_testing();
