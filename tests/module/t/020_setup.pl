
# Copyright (c) 2026, the persistent-cache developers

# --cluster finds a cluster of Debian's packages.  What root becomes by it is tested with the packages.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my ($version) = run_command([ 'pg_config', '--version' ]);
my ($major) = $version =~ /(\d+)/;
plan skip_all => 'the program is not built' if !-x "$bindir/pg_pcache";

# The layout of Debian's packages
my $node = module_node('main', conf => "shared_preload_libraries = ''\npcache.mode = off\n");
my $data = $node->data_dir;
my $root = "$ENV{PCACHE_SHM}/setup";
my $conf = "$root/$major/main";
mkdir $_ for $root, "$root/$major", $conf, "$conf/conf.d";
my $initial = slurp_file("$data/postgresql.conf");
$initial =~ s/^(shared_preload_libraries|pcache\.\S+) *=.*\n//mg;
$initial =~ s/^shared_buffers *=.*\n//mg;
$initial .= "shared_buffers = 24MB\n";
my $places = join '', map { "${_}_file = '$data/pg_$_.conf'\n" } 'hba', 'ident';

sub write_file
{
	my ($file, $text) = @_;

	open my $fh, '>', $file or die "$file: $!";
	print $fh $text;
	close $fh;
	return;
}

sub configure { return write_file("$conf/postgresql.conf", "${initial}data_directory = '$data'\n$places$_[0]") }

local $ENV{PG_CLUSTER_CONF_ROOT} = $root;
# what --cluster names takes precedence
local $ENV{PGDATA} = '/nonexistent';

sub program
{
	my @arguments = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ "$bindir/pg_pcache", @arguments ], '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

my $include = "include_dir = 'conf.d'\n";
configure($include);

# ---------------------------------------------------------------- --cluster
my ($rc, $out, $err) = program('check', '--cluster', "$major/main");
is($rc, 2, 'check --cluster: exit status');
like($out, qr/^next start: COLD: pcache\.mode is off$/m, '... and the answer');
($rc, $out, $err) = program('status', '--cluster', "$major/main");
like($err, qr/"pcache\.directory" is not set/, 'status --cluster has read the configuration');
for my $bad ('main', "$major/", "$major/.x", "$major/-x", "$major/../main", "$major/a b", "/$major/main", "x/main", '')
{
	($rc, $out, $err) = program('status', '--cluster', $bad);
	is($rc, 1, "--cluster '$bad': exit status");
	like($err, qr/invalid name of a cluster: "\Q$bad\E"\n.*hint: .*\Q$major\E\/main/, '... and message');
}
($rc, $out, $err) = program('status', '--cluster', "$major/nobody");
is($rc, 1, 'a cluster that is not there: exit status');
like($err, qr/could not find cluster "$major\/nobody": .*\n.*hint: pg_lsclusters/, '... and message');
($rc, $out, $err) = program('status', '--cluster', '9/main');
is($rc, 1, 'a cluster of another version: exit status');
like($err, qr/is not of version $major.*\n.*hint: Install the package postgresql-9-pcache, which has "\/usr\/lib\/postgresql\/9\/bin\/pg_pcache"/,
	'... and the program for it');
($rc, $out, $err) = program('status', '--cluster', "$major/main", '-D', $data);
is($rc, 1, '--cluster and -D: exit status');
like($err, qr/options -D\/--pgdata and --cluster cannot be used together/, '... and message');

done_testing();
