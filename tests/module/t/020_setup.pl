
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache setup tells what a cluster of Debian's packages needs, and --cluster finds
# it.  What is told has the effect that it should have.  tests/deb/run --setup carries
# it out as root.

use strict;
use warnings FATAL => 'all';

use JSON::PP qw(decode_json);
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

sub setup
{
	my @arguments = @_;
	my ($rc, $out, $err) = program('setup', '--json', "$major/main", @arguments);

	return { %{ decode_json($out) }, rc => $rc, stderr => $err };
}

sub codes { return join ' ', map { $_->{code} } @{ $_[0]{notes} } }

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

# ---------------------------------------------------------------- options of setup
for my $case (
	[ [ '-D', $data ], qr/option --pgdata cannot be used with "setup"/ ],
	[ [ '--config-file', 'x' ], qr/option --config-file cannot be used with "setup"/ ],
	[ [ "$major/main", 'more' ], qr/too many command-line arguments \(first is "more"\)/ ],
	[ [ '--apply', '--dry-run' ], qr/options --apply and --dry-run cannot be used together/ ],
	[ ['--no-restart'], qr/option --no-restart can only be used together with --apply/ ],
	[ [ '--mode', 'off' ], qr/invalid value "off" for option --mode\n.*hint: .*"planned_restart" or "always"/ ],
	[ [ '--apply', "$major/main" ], qr/option --apply can only be used by root/ ])
{
	($rc, $out, $err) = program('setup', @{ $case->[0] });
	is($rc, 1, "setup @{$case->[0]}: exit status");
	like($err, $case->[1], '... and message');
	is($out, '', '... and nothing else');
}
($rc, $out, $err) = program('setup', '--help');
like($out, qr/^  pg_pcache \[OPTION\]\.\.\. setup \[CLUSTER\]$/m, 'setup --help names the cluster');
unlike($out, qr/--pgdata|--config-file/, '... and no option that is refused');
is(join(' ', glob("$conf/conf.d/*")), '', 'nothing was written');
($rc, $out, $err) = program('status', '--apply', '--cluster', "$major/main");
like($err, qr/option --apply can only be used with "setup"/, 'an option of setup with another verb');

# ---------------------------------------------------------------- the plan
my $plan = setup();
is($plan->{rc}, 0, 'setup: exit status') or diag($plan->{stderr});
is($plan->{cluster}, "$major/main", 'setup: the cluster');
is($plan->{user}, scalar getpwuid($<), '... its user');
is($plan->{shared_buffers}, 24 * 1024 * 1024, '... its shared buffers');
cmp_ok($plan->{pool_size}, '>', $plan->{shared_buffers}, '... and its pool');
is($plan->{mount}{mount_point}, "/srv/pcache/$major-main", '... with a mount of its own');
ok(!$plan->{server_running} && !$plan->{restart}, 'a server that is down is not restarted');
ok($plan->{configuration}{write}, 'the configuration is to be written');
ok(!-e $plan->{configuration}{path}, '... but not yet');
is_deeply(setup('--dry-run')->{configuration}, $plan->{configuration}, '--dry-run is the default');
($rc, $out, $err) = program('setup');
is($rc, 0, 'without a name, it is the only cluster');
like($out, qr/^    pcache\.directory = '\/srv\/pcache\/$major-main'$/m, '... and the text has its lines');
like($out, qr/^    Options=\Q$plan->{mount}{options}\E$/m, '... and the mount');

# The same memory as ndctl-setup mounts: where the kernel may swap a tmpfs, ours says so as well.
my $functions = "$ENV{PCACHE_ROOT}/tools/ndctl-setup/lib/apply.sh";
my ($ndctl) = run_command([ 'bash', '-c', <<'BASH', 'options', $functions, $plan->{user}, $plan->{mount}{options} ]);
STEP=mount
declare -A SETTINGS=([user]=$2) FIELDS=([mount.type]=tmpfs [mount.size]=SIZE)
kernel_has() { [[ $wanted == *,noswap* ]]; }
wanted=$3
. <(sed -n '/^memory_options() {$/,/^}$/p' "$1")
memory_options
BASH
(my $ours = $plan->{mount}{options}) =~ s/size=\d+G/size=SIZE/;
$ndctl =~ s/,huge=within_size// if $ours !~ /huge=/;
is($ours, $ndctl, 'the mount is that of ndctl-setup, profile dram');

# The lines have the effect that they are to have, and are not written twice.
my $libraries = is_patched() ? '' : 'auto_explain';
write_file("$conf/conf.d/a.conf", "shared_preload_libraries = '$libraries'\n");
$plan = setup('--mode=always');
is(codes($plan), '', 'another library is no obstacle');
write_file("$conf/conf.d/pcache.conf", $plan->{configuration}{text});
my %effect = (
	'shared_preload_libraries' => is_patched() ? '' : 'auto_explain, pg_pcache',
	'pcache.mode' => 'always',
	'pcache.directory' => "/srv/pcache/$major-main");
for my $name (sort keys %effect)
{
	my ($value) = run_command([ "$bindir/postgres", '-D', $conf, '-C', $name ]);
	is($value, $effect{$name}, "$name has its value");
}
$plan = setup();
is($plan->{rc}, 0, 'once more: exit status');
ok(!$plan->{configuration}{write}, 'once more: the file is as it should be');
$plan = setup('--mode=planned_restart');
ok($plan->{configuration}{write}, 'another mode: it is to be written');
like($plan->{configuration}{text}, qr/^pcache\.mode = planned_restart$/m, '... with that mode');

# ---------------------------------------------------------------- what speaks against it
append_to_file("$conf/conf.d/pcache.conf", "# mine\n");
ok(setup()->{configuration}{write}, 'a file of ours that was changed is written again');
write_file("$conf/conf.d/pcache.conf", "pcache.mode = off\n");
$plan = setup();
is("$plan->{rc} " . codes($plan), '1 foreign_file', 'a file that is not ours is refused');
like($plan->{stderr}, qr/error: file "\Q$conf\E\/conf\.d\/pcache\.conf" is there, and was not written by this command\n.*hint: /, '... with a hint');
is(slurp_file("$conf/conf.d/pcache.conf"), "pcache.mode = off\n", '... and stays');
unlink "$conf/conf.d/pcache.conf";

write_file("$conf/conf.d/pcache.conf", setup()->{configuration}{text});
is(codes(setup()), '', 'a file of ours that has its effect');
write_file("$conf/conf.d/z.conf", "pcache.mode = off\n");
is(codes(setup()), 'overridden', 'a later file of conf.d wins');
unlink "$conf/conf.d/z.conf";
configure("${include}pcache.mode = off\n");
is(codes(setup()), 'overridden', 'so does what follows in postgresql.conf');
configure('');
is(codes(setup()), 'overridden', 'conf.d is not included');
configure($include);
write_file("$data/postgresql.auto.conf", "pcache.mode = 'off'\n");
$plan = setup();
is("$plan->{rc} " . codes($plan), '1 overridden', 'ALTER SYSTEM wins over every file');
like($plan->{stderr}, qr/error: the line for "pcache\.mode" in ".*" has no effect\n.*hint: Run ALTER SYSTEM RESET pcache\.mode/,
	'... and the hint says how to undo it');
unlink "$data/postgresql.auto.conf", "$conf/conf.d/pcache.conf";
configure("pcache.directory = '/elsewhere'\n$include");
is(codes(setup()), 'other_directory', 'a pool that is elsewhere stays there');
configure("${include}shared_buffers = 1000TB\n");
($rc, $out, $err) = program('setup', "$major/main");
is($rc, 1, 'a configuration with a mistake: exit status');
is($out, '', '... and no plan');
configure("${include}shared_buffers = 4TB\n");
is(codes(setup()), 'memory', 'more than the machine has') if $plan->{memory} < 4 * 1024**4;

# Whoever can write to the directory decides who it belongs to, so root could become anybody.
configure($include);
chmod 0770, "$root/$major";
($rc, $out, $err) = program('setup', "$major/main");
is($rc, 1, 'a directory that others can change: exit status');
like($err, qr/could not find out whose cluster "$major\/main" is: directory "\Q$root\/$major\E" can be changed by other users\n.*hint: /, '... and message');
chmod 0755, "$root/$major";
rename $conf, "$root/$major/real";
symlink 'real', $conf;
($rc, $out, $err) = program('setup', "$major/main");
is($rc, 1, 'a link to a configuration: exit status');
like($err, qr/could not open directory "\Q$conf\E"/, '... and message');
unlink $conf;
rename "$root/$major/real", $conf;

# ---------------------------------------------------------------- a server that runs
$node->start;
$plan = setup();
ok($plan->{server_running} && $plan->{restart}, 'a server that runs is to be restarted');
ok(!$plan->{pool_in_use}, '... as it has no pool yet');
$node->stop;

done_testing();
