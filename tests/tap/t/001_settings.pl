
# Copyright (c) 2026, the persistent-cache developers

# The patched server loads the library by itself, and persistent_cache_* are other names
# of its settings.  With mode off, which is the default, there is no trace of the cache.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'built without the cache' if !has_cache();

my $node = new_node('main', mode => undef, libraries => '');
my $directory = pool_dir($node);
my ($rc, $out, $err, $expected, $offset);

sub show { my ($name) = @_; return $node->safe_psql('postgres', "SHOW $name") }

# ---------------------------------------------------------------- mode off
$node->start;
is(show("persistent_cache_$_->[0]"), $_->[1], "default of persistent_cache_$_->[0]") for [ 'mode', 'off' ], [ 'directory', '' ], [ 'size', '0' ], [ 'required', 'off' ];
load_data($node);
$expected = checksums($node);
warm_up($node);
$node->restart;
is(cached_table_pages($node), 0, 'off: nothing is kept');
is(checksums($node), $expected, 'off: contents are the same');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'persistent cache'}), 0, 'off: no worker');
$node->stop;
unlike(slurp_file($node->logfile), qr{persistent cache|pg_pcache}, 'off: no word in the log');
is_deeply([ glob $node->data_dir . '/*pcache*' ], [], 'off: no file in the data directory');

# ---------------------------------------------------------------- postgresql.conf
$node->append_conf('postgresql.conf', qq{
persistent_cache_mode = planned_restart
persistent_cache_directory = '$directory'
persistent_cache_required = on
});
$offset = log_offset($node);
$node->start;
is_cold($node, $offset, qr/^the pool was created by this start$/, 'planned_restart');
is(show($_), 'planned_restart', "planned_restart: $_") for 'persistent_cache_mode', 'pcache.mode';
is(show($_), $directory, "planned_restart: $_") for 'persistent_cache_directory', 'pcache.directory';
is(checksums($node), $expected, 'planned_restart: contents are the same');
restart_warm($node, 'planned_restart');
$node->stop;
is(verify_json($node)->{next_start}, 'warm', 'pg_pcache reads these names');

# named as on an unpatched server
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'");
$node->start;
restart_warm($node, 'the library is preloaded as well');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);

# ---------------------------------------------------------------- SQL
($rc, $out, $err) = $node->psql('postgres', q{SET persistent_cache_mode = 'always'});
like($err, qr/ERROR:  parameter "[^"]*" cannot be changed without restarting the server/, 'the mode cannot be set in a session');
$node->safe_psql('postgres', q{ALTER SYSTEM SET persistent_cache_mode = 'always'});
restart_warm($node, 'ALTER SYSTEM');
is(show('persistent_cache_mode'), 'always', 'ALTER SYSTEM: the mode');
$node->safe_psql('postgres', q{ALTER SYSTEM SET pcache.mode = 'planned_restart'});
restart_warm($node, 'ALTER SYSTEM, by the other name');
is(show('persistent_cache_mode'), 'planned_restart', 'ALTER SYSTEM, by the other name: the mode');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET persistent_cache_mode});
is(slurp_file($node->data_dir . '/postgresql.auto.conf') =~ /mode/ ? 1 : 0, 0, 'ALTER SYSTEM RESET: neither name is left');
($rc, $out, $err) = $node->psql('postgres', q{ALTER SYSTEM SET persistent_cache_mode = 'sometimes'});
like($err, qr/ERROR:  invalid value for parameter "[^"]*": "sometimes"\nHINT:  Available values: off, planned_restart, always\./, 'a value that there is not');
restart_warm($node, 'at last');
$node->stop;

done_testing();
