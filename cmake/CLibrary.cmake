# libl3.so and libl3.a, and how others find them: find_package(L3), add_subdirectory and pkg-config.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(l3_layers l3_capi l3_cpu l3_encoder l3_format l3_output)
list(TRANSFORM l3_layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE l3_objects)

add_library(l3 SHARED ${l3_objects})
set_target_properties(l3 PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/capi/exports.map)
target_link_options(l3 PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/capi/exports.map)

add_library(l3_static STATIC ${l3_objects})
set_target_properties(l3_static PROPERTIES OUTPUT_NAME l3)

foreach(library l3 l3_static)
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PRIVATE Threads::Threads)
  add_library(L3::${library} ALIAS ${library})  # for add_subdirectory and FetchContent
endforeach()

set(l3_package ${CMAKE_INSTALL_LIBDIR}/cmake/L3)
file(RELATIVE_PATH l3_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/l3.pc.in l3.pc @ONLY)
write_basic_package_version_file(L3ConfigVersion.cmake COMPATIBILITY SameMajorVersion)

install(TARGETS l3 l3_static EXPORT L3 COMPONENT c)
install(EXPORT L3 FILE L3Targets.cmake NAMESPACE L3:: DESTINATION ${l3_package} COMPONENT c)
install(DIRECTORY include/l3 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT c)
install(FILES cmake/L3Config.cmake ${PROJECT_BINARY_DIR}/L3ConfigVersion.cmake
  DESTINATION ${l3_package} COMPONENT c)
install(FILES ${PROJECT_BINARY_DIR}/l3.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT c)
