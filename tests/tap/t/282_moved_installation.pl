
# Copyright (c) 2026, the persistent-cache developers

# The installation can be moved: its programs and modules find each other and
# their libraries where they are, not where they were built for.  And they tell
# that they are not stock PostgreSQL's.

use strict;
use warnings FATAL => 'all';

use File::Copy qw(copy);
use File::Find qw(find);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this is about the patched server' if !is_patched();
plan skip_all => 'there is no ldd' if system('ldd --version >/dev/null 2>&1') != 0;

# Cluster.pm's servers get a path to libraries; these must do without.
delete $ENV{LD_LIBRARY_PATH};

my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my $old = $bindir =~ s{/bin$}{}r;
my $new = PostgreSQL::Test::Utils::tempdir() . '/moved';

# A copy, with file modes and links between the names of a library.
mkdir $new or die $!;
find({ no_chdir => 1, wanted => sub {
	my $to = $new . substr($_, length $old);

	return if $_ eq $old || m{^\Q$old\E/include(?:/|$)};
	if (-l $_) { symlink readlink($_), $to or die "$to: $!"; }
	elsif (-d $_) { mkdir $to or die "$to: $!"; }
	else { copy($_, $to) or die "$to: $!"; chmod +(stat $_)[2] & 07777, $to; }
} }, $old);

# All that is linked dynamically.
my @files;
find({ no_chdir => 1, wanted => sub { push @files, $_ if -f $_ && !-l $_ && (m{/bin/[^/]+$} || /\.so(?:\.|$)/) } }, $new);
cmp_ok(scalar @files, '>', 80, 'there is a whole installation');
my @wrong = grep {
	my ($out) = run_command([ 'ldd', $_ ]);
	$out =~ m{\Q$old\E/|\.so\S* => not found};
} @files;
is_deeply(\@wrong, [], 'no program or library looks where the installation was');
my ($libraries) = run_command([ 'ldd', "$new/bin/psql" ]);
like($libraries, qr{libpq\.so\S* => \Q$new\E/(?:bin/\.\./)?lib/libpq\.so}, 'psql has the libpq beside it');

for my $program (qw(psql pg_pcache postgres pg_basebackup initdb))
{
	my ($out, $err) = run_command([ "$new/bin/$program", '--version' ]);

	like($out, qr/^$program \(PostgreSQL\) 18\S* \(pcache\)$/, "$program --version: tells which build it is");
}

# It works there: libraries that the server loads, and programs that look for
# others beside them.
my $node = new_node('main', shared_buffers => '16MB');
$node->start;
load_data($node, rows => 100);
$node->stop;
with_install($node, $new, sub {
	is((run_command([ "$new/bin/pg_pcache", '-D' => $node->data_dir, 'verify' ]))[0] =~ /^next start: WARM/, 1, 'pg_pcache asks the postgres beside it');
	$node->start;
	like($node->safe_psql('postgres', 'SELECT version()'), qr/^PostgreSQL 18\S* \(pcache\) on /, 'version() tells which build it is');
	like($node->safe_psql('postgres', 'SHOW server_version_num'), qr/^18\d{4}$/, 'the number of the version is that of PostgreSQL');
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	is($node->safe_psql('postgres', 'SELECT last_start FROM pg_pcache_pool'), 'warm', 'an extension is loaded; the start was warm');
	is($node->safe_psql('postgres', q{SELECT setting LIKE '%moved/bin%' OR setting LIKE '%moved/lib%' FROM pg_config WHERE name = 'PKGLIBDIR'}), 't', 'modules are looked for in the new place');
	$node->stop;
});
done_testing();
